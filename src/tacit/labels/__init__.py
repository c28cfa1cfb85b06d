"""How a label leaves under a bound: coins, book, loss and the statement."""
