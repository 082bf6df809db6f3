"""Statistics of repeated runs."""

from __future__ import annotations

import math

import numpy as np


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """The score interval of Wilson (1927) for a share of successes: honest at 0 %, at 100 % and for few trials."""
    from statistics import NormalDist

    if trials == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share = successes / trials
    centre = share + z * z / (2 * trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def expected_running_time(evaluations: np.ndarray, success: np.ndarray) -> float:
    """Evaluations spent by all runs, per success (Hansen et al. 2009); inf when no run succeeded."""
    hits = int(np.sum(success))
    return float(np.sum(evaluations)) / hits if hits else math.inf
