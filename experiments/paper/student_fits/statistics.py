"""Constants of the study `student_fits`."""

SHOWN = (5.0, 2.0, 1.0)  # ν in figure students, besides the normal
PRINTED_SIGMA = 1.09  # in the legend of figure dfit
