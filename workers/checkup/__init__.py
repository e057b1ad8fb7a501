"""`evalbus doctor`: what a server and this machine are like, judged by what a batch needs of them.

`vitals` asks and judges nothing; `server`, `machine` and `batches` judge what was found, so that each rule can be tried
without a server that is ill in just that way.
"""
