"""Learned vectors of categories: how long they are, and how far apart at first."""

EMBEDDING_STD = 0.1  # of the initial vectors: at first levels are hardly distinguished


def embedding_size(levels: int) -> int:
    """Length of the learned vectors of a category: 1.6 levels^0.56, but at most 16."""
    return min(16, round(1.6 * levels**0.56))
