"""The studies of the paper, one folder each, and the formulas and recipes that several of them share."""
