"""Experiments on a pipeline that is already evaluated: planted faults, so that the ledger's blame is checked.

Here: what is planted where (`matrix`), how (`injector`), on what (`render`), and how blame is compared with it (`scoring`).
Not here: any test of the ledger. A fault is planted in files or laid over a stage's output, and sites are found by plain
search for the quote, so that the injector can't share a mistake with what it checks.
"""
