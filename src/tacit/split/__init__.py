"""Split learning, step by step: two halves, one cut, protections of what crosses, answers given once."""
