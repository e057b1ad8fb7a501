import unittest

from stock_reservation import Warehouse


class HiddenStockReservationTest(unittest.TestCase):
    def test_all_pieces_can_be_sold(self) -> None:
        warehouse = Warehouse({"chair": 4})
        for _ in range(4):
            self.assertTrue(warehouse.reserve({"chair": 1}))
            warehouse.ship({"chair": 1})
        self.assertEqual(warehouse.available("chair"), 0)
        self.assertFalse(warehouse.reserve({"chair": 1}))

    def test_shipping_one_order_keeps_the_other_reserved(self) -> None:
        warehouse = Warehouse({"chair": 10, "rug": 2})
        warehouse.reserve({"chair": 3, "rug": 1})
        warehouse.reserve({"chair": 4})
        warehouse.ship({"chair": 3, "rug": 1})
        self.assertEqual((warehouse.available("chair"), warehouse.available("rug")), (3, 1))

    def test_the_last_piece_can_be_reserved(self) -> None:
        self.assertTrue(Warehouse({"rug": 1}).reserve({"rug": 1}))

    def test_an_unknown_article_is_not_available(self) -> None:
        warehouse = Warehouse({})
        self.assertEqual(warehouse.available("sofa"), 0)
        self.assertFalse(warehouse.reserve({"sofa": 1}))

    def test_the_stock_given_is_copied(self) -> None:
        stock = {"rug": 2}
        warehouse = Warehouse(stock)
        warehouse.reserve({"rug": 2})
        warehouse.ship({"rug": 2})
        self.assertEqual(stock, {"rug": 2})


if __name__ == "__main__":
    unittest.main()
