"""Planning: which start, estimator and tuning serve which points.

A `Task` comes in, a list of `Assignment`s goes out. `plan` settles an estimator that the user
named. `choose` is the automatic choice, and `Policy` holds the constants that steer it.
"""
