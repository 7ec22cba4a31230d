"""Planning: which start, estimator and tuning serve which points.

A `Task` comes in, and a `Plan` goes out. `trials.plan_given` settles an estimator that the user
named. `auto.choose` is the automatic choice, and `Policy` holds the constants that steer it.
"""
