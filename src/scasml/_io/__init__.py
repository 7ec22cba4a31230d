"""Files and screen: tables of points and answers, plots, progress bars and Ctrl-C."""
