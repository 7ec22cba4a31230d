"""Random and quasi-random numbers: keys come in; times and the normal numbers of paths go out.

`normals` makes normal numbers, `sobol` makes scrambled Sobol nets, `designs` combines both into the
samples of one mean, and `times` turns a uniform number into a time and its weight.
"""
