"""Equations: the semilinear PDE as an estimator sees it.

`Problem` is the PDE of the user. `Defect` is the equation that the defect of a surrogate solves.
`LinearisedEquation` has the first-order part of F moved into drift and potential. All of them are
`AbstractEquation`s.
"""
