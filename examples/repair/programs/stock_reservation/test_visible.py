import unittest

from stock_reservation import Warehouse


class StockReservationTest(unittest.TestCase):
    def test_reserving_lowers_what_is_available(self) -> None:
        warehouse = Warehouse({"lamp": 5})
        self.assertTrue(warehouse.reserve({"lamp": 2}))
        self.assertEqual(warehouse.available("lamp"), 3)

    def test_a_short_line_reserves_nothing(self) -> None:
        warehouse = Warehouse({"lamp": 5, "desk": 1})
        self.assertFalse(warehouse.reserve({"lamp": 1, "desk": 2}))
        self.assertEqual(warehouse.available("lamp"), 5)

    def test_shipping_does_not_change_what_is_available(self) -> None:
        warehouse = Warehouse({"lamp": 5})
        warehouse.reserve({"lamp": 2})
        warehouse.ship({"lamp": 2})
        self.assertEqual(warehouse.available("lamp"), 3)


if __name__ == "__main__":
    unittest.main()
