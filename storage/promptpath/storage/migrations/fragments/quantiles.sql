AggregateFunction(quantilesDD(0.01, 0.5, 0.9, 0.95, 0.99), Int64)
