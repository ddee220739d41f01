"""Trivial baselines: tables of counts, a histogram, a classifier of single frames,
fitted in seconds on the training split of a page's models and scored on their test
items. A model that does not beat them has not learned what its page is about."""
