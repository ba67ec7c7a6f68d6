"""What would this limit have done: arrivals replayed through the real algorithms, on a virtual clock."""
