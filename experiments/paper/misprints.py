"""Misprints of the paper that we came across: where, what is printed, what is meant."""

MISPRINTS = [
    ("App. B, averages", "⟨y⟩ and ⟨Y⟩ divide by n", "by m, the number of observations (`evidence` shows it)"),
    ("App. B, averages", "⟨Y⟩ is in Rᵐ, Y has n rows", "⟨Y⟩ is in Rⁿ; the m observations are the rows"),
    ("App. B, below eq:postdens", "residual sums are estimators up to (n − 1)", "up to (m − 1)"),
    ("App. C.1", "p(μ, Σ) = p(μ) p(Σ)", "p(μ | Σ) p(Σ): μ depends on Σ"),
    ("App. C.1", "⟨μᵢ μⱼ⟩ contains Σᵢⱼ/κ", "⟨Σᵢⱼ⟩/κ: the average over Σ is not yet taken there"),
    ("App. C.3", "the integral runs over μ₀, also in the text before eq:trick2", "over μ; μ₀ is a parameter"),
    ("Sec. 4", "t ~ 1 − ζ/π, ...", "that is the density of t at ζ, not a value of t"),
    ("Sec. 4", "ε ~ N(0, 0.1)", "0.1 is the standard deviation (as the figures and the published code have it)"),
    ("Sec. 2.3, App. Bias", "bias of ν and κ", "of ν and σ, which is what is fitted and shown"),
    ("App. Bias", "values above the 16 % and below the 84 % quantile as error bars", "the bars end at these quantiles"),
    ("Sec. 4", "density |1 − t/π| on [0, 2π]", "times 1/π, for its integral to be 1"),
    ("Sec. 4", "Ψᵢ = ν Lᵢ Lᵢᵀ", "νᵢ"),
    ("Sec. 1.2", "prior for the standard deviation σ", "for σ²: the inverse gamma distribution is that of σ²"),
    (
        "Sec. 1.2, 2.3, App. C.2",
        "St(y | μ, ·)",
        "the second argument is a squared scale in two places and a scale in 2.3",
    ),
    ("App. B, eq:postdens_mu", "a product of two columns", "the first is to be transposed"),
    ("App. C.2, end", "p(y, 𝔪)", "p(y | 𝔪)"),
    ("App. D", "the loss depends on β(1+κ)/κ alone", "and on μ₀ and α: the contours are for fixed μ₀ and α"),
    ("Sec. 4", "cut-off at 13 degrees of freedom", "at ν = 13 the evidence has ν − n + 1 = 12"),
]
