"""Fitting, and dropping rare n-grams, of counts that do not fit in memory."""
