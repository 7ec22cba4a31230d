"""Random and quasi-random numbers: keys come in; times and the normal numbers of paths go out.

`normals` makes normal numbers, and `sobol` makes scrambled Sobol nets. `designs` combines both into
the random numbers of all samples of one mean. `times` turns a uniform number into a time and its
time weight.
"""
