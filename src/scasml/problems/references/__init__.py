"""Reference solutions of the problems of the zoo that have no short closed form.

Each module contains functions or frozen dataclasses that map float64 arrays, often t (B,) and
x (B, d), to values (B,), and a bound on their error.
"""
