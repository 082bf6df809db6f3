"""The random numbers: the very stream, its uniformity, and the independence of everything that is drawn side by side.

Every seed is fixed, so no test can fail by bad luck tomorrow; a sound generator would fail one statistical test in
1 / SIGNIFICANCE. The tests are two-sided: a stream more even than chance is refused too.
"""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from support.cases import params

from galapax import minimize
from galapax.core.errors import InputError
from galapax.numerics import random
from galapax.problems import get

SIGNIFICANCE = 1e-4
MASK = 0xFFFFFFFF

draw = jax.jit(random.bits, static_argnums=1)
draw_uniform = jax.jit(random.uniform, static_argnums=(1, 2))
draw_integers = jax.jit(random.integers, static_argnums=(1, 2))
draw_bernoulli = jax.jit(random.bernoulli, static_argnums=2)
scaled = jax.jit(random.scale_to, static_argnums=1)


@partial(jax.jit, static_argnums=1)
def draw_each(keys, shape):
    """The same draw from each of the keys (k, 2)."""
    return jax.vmap(lambda key: random.bits(key, shape))(keys)


@jax.jit
def folded(keys, numbers):
    """The children of each key (k, 2) with each number (g,), (k, g, 2)."""
    return jax.vmap(lambda key: jax.vmap(lambda number: random.fold_in(key, number))(numbers))(keys)


def run_key(seed=7):
    return random.run_keys(seed, 0, 1)[0]


# ---------------------------------------------------------------------------------------------------------------------
# The stream, written a second time in Python's whole numbers


def mixed(x):
    x = (x ^ (x >> 16)) * 0x21F0AAAD & MASK
    x = (x ^ (x >> 15)) * 0x735A2D97 & MASK
    return x ^ (x >> 15)


def child(key, number):
    return (
        mixed((key[0] + (number + 1) * 0x9E3779B9) & MASK),
        mixed((key[1] + (number + 1) * 0x85EBCA6B) & MASK),
    )


def word(key, position):
    x = (position * 0x9E3779B9 + key[0]) & MASK
    x = ((x ^ (x >> 16)) * 0x21F0AAAD + key[1]) & MASK
    x = (x ^ (x >> 15)) * 0x735A2D97 & MASK
    x = (x ^ (x >> 15)) * 0x846CA68B & MASK
    return x ^ (x >> 16)


def plain(key):
    return tuple(int(part) for part in key)


def words_of(key, count):
    return np.array([word(plain(key), i) for i in range(count)], np.uint32)


def test_run_keys_are_the_published_answers_of_threefry_2x32_with_13_rounds():
    assert random.run_keys(0, 0, 1).tolist() == [[0x9D1C5EC6, 0x8BD50731]]
    pi = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]  # Random123's vectors: counter first, then key
    for counter, key, answer in (
        ((MASK, MASK), (MASK, MASK), (0xFD36D048, 0x2D17272C)),
        (pi[:2], pi[2:], (0xBA3E4725, 0xF27D669E)),
    ):
        x0, x1 = np.array(counter, np.uint32)[:, None]
        assert tuple(int(x[0]) for x in random._threefry(np.array([key], np.uint32), x0, x1)) == answer


def test_the_stream_is_pinned():
    # a change of any of these words changes every run that anybody ever saved
    assert random.root_key(2**40 + 5).tolist() == [256, 5]
    assert random.run_keys(7, 3, 1).tolist() == [[0x372C2F7D, 0x8ED7AE65]]
    assert np.asarray(random.fold_in(run_key(), 12)).tolist() == [0x2C77134C, 0x8C9AE9E2]
    assert np.asarray(random.bits(run_key(), (4,))).tolist() == [0x27DC664D, 0x805C38D5, 0x99467DB7, 0xA5943F57]


def test_the_words_are_those_of_the_definition():
    keys = [run_key(), np.zeros(2, np.uint32), np.full(2, MASK, np.uint32), np.array([0, MASK], np.uint32)]
    for key in keys:
        assert np.array_equal(draw(key, (300,)), words_of(key, 300))


def test_children_are_those_of_the_definition():
    for key in (run_key(), np.zeros(2, np.uint32), np.full(2, MASK, np.uint32)):
        for number in (0, 1, 2, 77, 2**31 - 1):
            assert plain(random.fold_in(key, number)) == child(plain(key), number)
        assert [plain(k) for k in random.split(key, 3)] == [child(plain(key), i) for i in range(3)]


def test_a_draw_is_the_same_eager_compiled_and_vectorised():
    keys = random.run_keys(3, 0, 5)
    eager = np.stack([random.bits(key, (6, 7)) for key in keys])
    assert np.array_equal(eager, np.stack([draw(key, (6, 7)) for key in keys]))
    assert np.array_equal(eager, draw_each(keys, (6, 7)))
    assert np.array_equal(eager, jax.vmap(lambda key: random.bits(key, (6, 7)))(jnp.asarray(keys)))
    children = np.stack([[random.fold_in(key, g) for g in range(4)] for key in keys])
    assert np.array_equal(children, folded(keys, np.arange(4)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_draw_does_not_depend_on_the_precision_of_the_run(dtype):
    with jax.enable_x64(dtype == "float64"):
        assert np.array_equal(random.bits(run_key(), (50,)), words_of(run_key(), 50))
        assert np.array_equal(
            random.integers(run_key(), (50,), 10**6), words_of(run_key(), 50).astype(int) * 10**6 >> 32
        )
        assert np.asarray(random.fold_in(run_key(), np.int64(9))).tolist() == list(child(plain(run_key()), 9))


@pytest.mark.parametrize("shape", [(), (1,), (60,), (12, 5), (3, 4, 5), (60, 1), (0, 3)])
def test_positions_count_in_row_major_order(shape):
    drawn = np.asarray(random.bits(run_key(), shape))
    assert drawn.shape == shape and drawn.dtype == np.uint32
    assert np.array_equal(drawn.ravel(), words_of(run_key(), drawn.size))


def test_a_run_has_the_same_key_alone_and_in_an_ensemble():
    together = random.run_keys(11, 0, 40)
    assert np.array_equal(random.run_keys(11, 25, 1)[0], together[25])
    assert np.array_equal(random.run_keys(11, 30, 10), together[30:])
    assert random.run_keys(11, 2**32 - 1, 1).shape == (1, 2)


@pytest.mark.parametrize("seed", [-1, 2**64, 1.0, True, "7", float("nan"), np.float64(3), np.bool_(True)])
def test_a_seed_that_is_no_whole_number_of_64_bits_is_refused(seed):
    with pytest.raises(InputError, match=r"seed must be a whole number from 0 to 2\*\*64 - 1, got"):
        random.root_key(seed)
    with pytest.raises(InputError, match="seed must be"):
        minimize(get("sphere", dim=2), seed=seed, generations=1, polish=False)


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**64 - 1, np.int64(5), np.uint64(2**64 - 1)])
def test_a_seed_may_be_any_whole_number_of_64_bits(seed):
    high, low = random.root_key(seed)
    assert int(high) << 32 | int(low) == int(seed)


def test_more_words_than_positions_are_refused():
    with pytest.raises(InputError, match=r"at most 2\*\*32 random words"):
        random.bits(run_key(), (2**17, 2**16))


# ---------------------------------------------------------------------------------------------------------------------
# Streams: words that a run lays side by side, in the order in which neighbours would show a dependence


def by_position(count):
    return draw(run_key(), (count,))


def by_generation(count):
    """Position 0 of one generation after the other."""
    keys = folded(run_key()[None], np.arange(1, count + 1))[0]
    return draw_each(keys, (1,))


def by_sibling(count):
    """The children of a generation's key in turn, word by word."""
    keys = folded(folded(run_key()[None], np.arange(1, 65))[0], np.arange(4)).reshape(64, 4, 2)
    return jnp.swapaxes(draw_each(keys.reshape(256, 2), (count // 256,)).reshape(64, 4, -1), 1, 2)


def by_run(count):
    """Position 0 of the first generation of one run after the other."""
    return draw_each(folded(random.run_keys(7, 0, count), np.ones(1, int))[:, 0], (1,))


def by_seed(count):
    """Each position of the first generation, of one seed after the other."""
    keys = np.concatenate([random.run_keys(seed, 0, 1) for seed in range(4096)])
    return draw_each(folded(keys, np.ones(1, int))[:, 0], (count // 4096,)).T


def by_population(count):
    """Whole draws of 1024 words, one generation after the other."""
    return draw_each(folded(run_key()[None], np.arange(1, count // 1024 + 1))[0], (1024,))


STREAMS = {
    "positions": by_position,
    "generations": by_generation,
    "siblings": by_sibling,
    "runs": by_run,
    "seeds": by_seed,
    "populations": by_population,
}
EVERY_STREAM = pytest.mark.parametrize("name", STREAMS)


@cache
def stream(name, count=2**20):
    return np.asarray(STREAMS[name](count)).ravel()


def is_chance(statistic, degrees):
    """Whether a chi-square statistic is neither too large nor too small."""
    return SIGNIFICANCE / 2 < stats.chi2.sf(statistic, degrees) < 1 - SIGNIFICANCE / 2


def evenly(counts, out_of=np.inf):
    """Whether counts of equally likely classes are as uneven as chance makes them.

    out_of: how many different words there are, where none is drawn twice.
    """
    expected = counts.sum() / counts.size
    statistic = ((counts - expected) ** 2).sum() / expected
    return is_chance(statistic / (1 - counts.sum() / out_of), counts.size - 1)


def signs(words):
    """The bits of words (n,) as -1 and +1, (n, 32)."""
    octets = np.ascontiguousarray(words).view(np.uint8).reshape(-1, 4)
    return np.unpackbits(octets, axis=1).astype(np.float32) * 2 - 1


def unrelated_bits(a, b):
    """Whether no bit of `a` goes with any bit of `b`, and the 1024 correlations together are chance."""
    blocks = range(0, len(a), 2**18)  # to spare memory
    z = sum(signs(a[i : i + 2**18]).T @ signs(b[i : i + 2**18]) for i in blocks) / np.sqrt(len(a))
    largest = stats.norm.isf(SIGNIFICANCE / 2 / z.size)
    return np.abs(z).max() < largest and is_chance((z**2).sum(), z.size)


def unrelated_in_the_plane(a, b, low=False):
    """Whether points (a, b) fill the cells of a 128 x 128 grid evenly, by the highest or the lowest seven bits."""
    a, b = (a & 127, b & 127) if low else (a >> 25, b >> 25)
    return evenly(np.bincount((a * 128 + b).astype(np.int64), minlength=128**2))


@pytest.mark.parametrize("name", params(STREAMS, slow={"positions", "siblings", "seeds"}))
def test_each_of_the_32_bits_is_balanced(name):
    words = stream(name)
    z = signs(words).sum(axis=0, dtype=np.float64) / np.sqrt(len(words))
    assert np.abs(z).max() < stats.norm.isf(SIGNIFICANCE / 2 / 32)
    assert is_chance((z**2).sum(), 32)


@EVERY_STREAM
@pytest.mark.parametrize("byte", range(4))
def test_each_byte_is_uniform(name, byte):
    assert evenly(np.bincount(stream(name) >> np.uint32(8 * byte) & 255, minlength=256))


@EVERY_STREAM
def test_neighbouring_words_fill_the_plane_evenly(name):
    words = stream(name)
    for low in (False, True):
        assert unrelated_in_the_plane(words[::2], words[1::2], low)  # pairs without overlap are independent


@EVERY_STREAM
@pytest.mark.parametrize("lag", [1, 2, 3, 32, 1024])
def test_neighbouring_words_are_uncorrelated(name, lag):
    words = stream(name)
    share = words / 2.0**32 - 0.5
    r = np.dot(share[:-lag], share[lag:]) / np.dot(share, share)
    assert abs(r) * np.sqrt(len(words)) < stats.norm.isf(SIGNIFICANCE / 2)


@pytest.mark.parametrize("name", params(STREAMS, quick={"seeds"}))
def test_no_bit_goes_with_a_bit_of_the_next_word(name):
    words = stream(name)[: 2**18]
    assert unrelated_bits(words[:-1], words[1:])


@EVERY_STREAM
def test_runs_up_and_down_are_as_frequent_as_by_chance(name):
    words = stream(name)
    count = len(words)
    turns = np.diff(np.sign(np.diff(words.astype(np.int64))))
    runs = 1 + np.count_nonzero(turns)  # Wald-Wolfowitz: mean (2n - 1) / 3, variance (16n - 29) / 90
    assert abs(runs - (2 * count - 1) / 3) < stats.norm.isf(SIGNIFICANCE / 2) * np.sqrt((16 * count - 29) / 90)


def test_one_draw_is_a_permutation_and_repeats_no_word():
    # positions go through bijections of 32-bit words; chance would repeat 128 of 2^20 words
    assert len(np.unique(stream("positions"))) == 2**20


@pytest.mark.slow
def test_several_draws_together_repeat_words_as_chance_does():
    repeats = 2**20 - len(np.unique(stream("populations")))
    assert SIGNIFICANCE < stats.poisson.cdf(repeats, 2**40 / 2**33) < 1 - SIGNIFICANCE


# ---------------------------------------------------------------------------------------------------------------------
# Relatives: two draws of the same shape from keys that are close to each other


def neighbouring_generations():
    keys = folded(run_key()[None], np.arange(1, 514))[0]
    return keys[:-1], keys[1:]


def siblings():
    first, second = folded(folded(run_key()[None], np.arange(1, 513))[0], np.arange(2)).swapaxes(0, 1)
    return first, second


def cousins():
    """The second child of a generation and the first child of the next one."""
    children = folded(folded(run_key()[None], np.arange(1, 514))[0], np.arange(2))
    return children[:-1, 1], children[1:, 0]


def neighbouring_runs():
    keys = folded(random.run_keys(7, 0, 513), np.full(1, 40))[:, 0]
    return keys[:-1], keys[1:]


def neighbouring_seeds():
    keys = np.concatenate([random.run_keys(seed, 0, 1) for seed in range(513)])
    keys = folded(keys, np.full(1, 40))[:, 0]
    return keys[:-1], keys[1:]


def run_and_seed_swapped():
    """Run r of seed s, and run s of seed r."""
    pairs = [(s, r) for s in range(32) for r in range(s + 1, s + 17)]
    first = np.concatenate([random.run_keys(s, r, 1) for s, r in pairs])
    second = np.concatenate([random.run_keys(r, s, 1) for s, r in pairs])
    return first, second


def keys_that_share_their_first_word():
    words = np.random.default_rng(1).integers(0, 2**32, (3, 512), dtype=np.uint32)
    return np.stack(words[:2], axis=1), np.stack(words[::2], axis=1)


def keys_that_share_their_second_word():
    words = np.random.default_rng(2).integers(0, 2**32, (3, 512), dtype=np.uint32)
    return np.stack(words[:2], axis=1), np.stack(words[2:0:-1], axis=1)


RELATIVES = {
    f.__name__: f
    for f in (
        neighbouring_generations,
        siblings,
        cousins,
        neighbouring_runs,
        neighbouring_seeds,
        run_and_seed_swapped,
        keys_that_share_their_first_word,
        keys_that_share_their_second_word,
    )
}


@pytest.mark.parametrize(
    "name", params(RELATIVES, quick={"neighbouring_generations", "keys_that_share_their_second_word"})
)
def test_relatives_draw_unrelated_words(name):
    first, second = (np.asarray(draw_each(keys, (1024,))).ravel() for keys in RELATIVES[name]())
    assert not np.array_equal(first, second)
    for low in (False, True):
        assert unrelated_in_the_plane(first, second, low)
    assert unrelated_bits(first[::2], second[::2])
    flipped = np.bitwise_count(first ^ second)
    counts = np.bincount(flipped, minlength=33)[6:27]
    chance = stats.binom.pmf(np.arange(6, 27), 32, 0.5) * len(first)
    assert is_chance(((counts - chance) ** 2 / chance).sum(), counts.size)


@pytest.mark.slow
def test_no_two_of_a_million_runs_and_generations_have_the_same_key():
    keys = np.asarray(folded(random.run_keys(0, 0, 1000), np.arange(1000)), np.uint64).reshape(-1, 2)
    assert len(np.unique(keys[:, 0] << np.uint64(32) | keys[:, 1])) == 10**6


def test_no_two_runs_of_a_thousand_seeds_have_the_same_key():
    keys = np.concatenate([random.run_keys(seed, 0, 1000) for seed in range(1000)]).astype(np.uint64)
    assert len(np.unique(keys[:, 0] << np.uint64(32) | keys[:, 1])) == 10**6


@pytest.mark.slow
def test_no_stream_is_a_shifted_copy_of_another():
    # two words in a row are found once in all of 32 runs x 32 generations, at whatever position
    keys = folded(random.run_keys(0, 0, 32), np.arange(1, 33)).reshape(-1, 2)
    words = np.asarray(draw_each(keys, (1024,)), np.uint64)
    pairs = words[:, :-1] << np.uint64(32) | words[:, 1:]
    assert len(np.unique(pairs)) == pairs.size


# ---------------------------------------------------------------------------------------------------------------------
# Avalanche: one bit of the input turns each bit of the output in half of the cases, to 2 % of all cases


def assert_avalanche(function, inputs, positions=range(32)):
    """function maps words (n,) to words (n,); every single bit of its input is flipped."""
    before = np.asarray(function(inputs))
    for bit in positions:
        turned = before ^ np.asarray(function(inputs ^ np.uint32(1 << bit)))
        chance = np.array([np.mean(turned >> np.uint32(i) & 1) for i in range(32)])
        assert np.abs(chance - 0.5).max() < 0.02, f"input bit {bit}, output bit {np.abs(chance - 0.5).argmax()}"


def random_words(seed, count=2**15):
    return np.random.default_rng(seed).integers(0, 2**32, count, dtype=np.uint32)


def test_avalanche_of_the_first_key_word():
    other = random_words(1)
    assert_avalanche(lambda first: draw_each(np.stack([first, other], axis=1), (1,))[:, 0], random_words(0))


def test_avalanche_of_the_second_key_word():
    other = random_words(1)
    assert_avalanche(lambda second: draw_each(np.stack([other, second], axis=1), (1,))[:, 0], random_words(0))


@pytest.mark.slow
def test_avalanche_of_the_position():
    words = np.asarray(draw(run_key(), (2**20,)))
    assert_avalanche(lambda position: words[position], np.arange(2**20, dtype=np.uint32), range(20))


@pytest.mark.parametrize("side", [0, 1])
def test_avalanche_of_the_generation_number_in_the_generation_key(side):
    parent = random.run_keys(5, 0, 1)
    assert_avalanche(lambda number: folded(parent, number)[0, :, side], np.arange(2**15, dtype=np.uint32), range(15))


@pytest.mark.parametrize("side", [0, 1])
def test_avalanche_of_the_run_number_in_the_run_key(side):
    keys = random.run_keys(5, 0, 2**15)
    assert_avalanche(lambda run: keys[run, side], np.arange(2**15, dtype=np.uint32), range(15))


@pytest.mark.parametrize("side", [0, 1])
def test_avalanche_of_a_run_key_in_what_its_generations_draw(side):
    other = random_words(1)

    def drawn(part):
        keys = np.stack([part, other] if side == 0 else [other, part], axis=1)
        return draw_each(folded(keys, np.ones(1, int))[:, 0], (1,))[:, 0]

    assert_avalanche(drawn, random_words(0))


# ---------------------------------------------------------------------------------------------------------------------
# Numbers made of the words


def as_chance_would(share):
    """Whether numbers in [0, 1) pass Kolmogorov-Smirnov and have the mean and the variance of a uniform variable."""
    n, share = share.size, share.astype(np.float64).ravel()
    mean = (share.mean() - 1 / 2) / np.sqrt(1 / 12 / n)
    spread = (np.mean((share - 1 / 2) ** 2) - 1 / 12) / np.sqrt(1 / 180 / n)
    limit = stats.norm.isf(SIGNIFICANCE / 2)
    return stats.kstest(share, "uniform").pvalue > SIGNIFICANCE and abs(mean) < limit and abs(spread) < limit


def drawn_uniform(dtype, shape=(2**19,)):
    with jax.enable_x64(dtype == "float64"):
        share = np.asarray(draw_uniform(run_key(), shape, dtype))
    assert share.dtype == dtype and share.shape == shape
    return share


@pytest.mark.parametrize(("dtype", "resolution"), [("float32", 24), ("float64", 53)])
def test_uniform_numbers_are_uniform_to_the_last_bit(dtype, resolution):
    share = drawn_uniform(dtype)
    assert share.min() >= 0 and share.max() < 1
    assert as_chance_would(share)
    steps = share.astype(np.float64) * 2.0**resolution
    assert np.array_equal(steps, np.floor(steps))
    balance = (steps.astype(np.int64)[:, None] >> np.arange(resolution) & 1).mean(axis=0)
    assert np.abs(balance - 0.5).max() < stats.norm.isf(SIGNIFICANCE / 2 / resolution) / 2 / np.sqrt(share.size)


@pytest.mark.parametrize(("dtype", "largest"), [("float32", 1 - 2.0**-24), ("float64", 1 - 2.0**-53)])
def test_the_highest_word_stays_below_one(dtype, largest, monkeypatch):
    monkeypatch.setattr(random, "bits", lambda key, shape: jnp.full(shape, MASK, jnp.uint32))
    with jax.enable_x64(dtype == "float64"):
        assert float(random.uniform(run_key(), (), dtype)) == largest


def test_halves_of_a_float64_number_are_unrelated():
    steps = (drawn_uniform("float64") * 2.0**53).astype(np.int64)
    high, low = (steps >> 27).astype(np.uint32), (steps & (2**26 - 1)).astype(np.uint32)
    assert unrelated_in_the_plane(high << np.uint32(6), low << np.uint32(6))
    assert unrelated_in_the_plane(high, low, low=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_genes_of_a_population_are_uncorrelated(dtype):
    share = drawn_uniform(dtype, (2**15, 16)).astype(np.float64)
    for direction in (share, share.reshape(16, -1).T):  # columns; then rows far apart
        z = np.corrcoef(direction, rowvar=False)[np.triu_indices(16, 1)] * np.sqrt(len(direction))
        assert is_chance((z**2).sum(), z.size) and np.abs(z).max() < stats.norm.isf(SIGNIFICANCE / 2 / z.size)


def test_bernoulli_is_exact_at_rate_zero_and_one():
    assert not draw_bernoulli(run_key(), 0.0, (2**20,)).any()
    assert draw_bernoulli(run_key(), 1.0, (2**20,)).all()


def test_bernoulli_at_rate_zero_and_one_withstands_the_lowest_and_the_highest_word(monkeypatch):
    monkeypatch.setattr(random, "bits", lambda key, shape: jnp.array([0, MASK], jnp.uint32))
    assert random.bernoulli(run_key(), 0.0, (2,)).tolist() == [False, False]
    assert random.bernoulli(run_key(), 1.0, (2,)).tolist() == [True, True]
    assert random.bernoulli(run_key(), 2.0**-24, (2,)).tolist() == [True, False]


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.7, 0.9, 0.999, 2.0**-12])
def test_bernoulli_is_true_at_its_rate(rate):
    hits = int(draw_bernoulli(run_key(), rate, (2**20,)).sum())
    assert stats.binomtest(hits, 2**20, rate).pvalue > SIGNIFICANCE


def test_the_rate_of_bernoulli_is_data():
    rates = np.linspace(0, 1, 21)
    shares = jax.vmap(lambda rate: random.bernoulli(run_key(), rate, (2**16,)).mean())(rates)
    assert np.abs(shares - rates).max() < 4 * 0.5 / np.sqrt(2**16)
    assert np.all(np.diff(shares) > 0)


@pytest.mark.parametrize("limit", [1, 2, 7, 1000, 65535, 65536, 65537, 10**6])
def test_integers_are_uniform_below_their_limit(limit):
    drawn = np.asarray(draw_integers(run_key(), (2**20,), limit))
    assert drawn.dtype == np.int32 and drawn.min() >= 0 and drawn.max() < limit
    if limit <= 1000:
        assert limit == 1 or evenly(np.bincount(drawn, minlength=limit))
        return
    for part in (lambda i: i * 1000 // limit, lambda i: i % 1000):  # the first digits, then the last
        expected = np.bincount(part(np.arange(limit)), minlength=1000) / limit * drawn.size
        found = np.bincount(part(drawn.astype(np.int64)), minlength=1000)
        assert is_chance(((found - expected) ** 2 / expected).sum(), 999)


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 1000, 32768, 65535, 65536, 65537, 10**6, 2**24 + 1, 2**30, 2**31 - 1])
def test_scale_to_is_the_high_half_of_the_product(limit):
    words = np.concatenate([random_words(limit), np.array([0, 1, 0xFFFF, 0x10000, 2**31, MASK - 1, MASK], np.uint32)])
    assert np.array_equal(scaled(words, limit), (words.astype(np.uint64) * np.uint64(limit)) >> np.uint64(32))


# ---------------------------------------------------------------------------------------------------------------------
# The same on 2^26 words, where a small flaw would show


@cache
def long_stream(name):
    return stream.__wrapped__(name, 2**26)


LONG_STREAM = pytest.mark.parametrize("name", ["positions", "siblings", "populations"])


@pytest.mark.slow
@LONG_STREAM
def test_words_of_a_long_stream_are_uniform(name):
    words = long_stream(name)
    out_of = 2**32 if name == "positions" else np.inf  # one draw repeats no word, and 2^26 of them show it
    for byte in range(4):
        assert evenly(np.bincount(words >> np.uint32(8 * byte) & 255, minlength=256), out_of)
    assert evenly(np.bincount(words >> 12, minlength=2**20), out_of)
    assert evenly(np.bincount(words & (2**20 - 1), minlength=2**20), out_of)


@pytest.mark.slow
@LONG_STREAM
def test_triples_of_a_long_stream_fill_the_cube_evenly(name):
    words = long_stream(name)[: 3 * (2**26 // 3)].reshape(-1, 3).astype(np.int64)
    for digits in (words >> 26, words & 63):
        assert evenly(np.bincount(digits @ (64**2, 64, 1), minlength=64**3))


@pytest.mark.slow
@LONG_STREAM
@pytest.mark.parametrize("shift", [0, 8, 24])
def test_gaps_of_a_long_stream_are_geometric(name, shift):
    """Knuth's gap test: how long a value of an eight-bit window stays away."""
    hits = np.flatnonzero((long_stream(name) >> np.uint32(shift) & 255) == 0)
    gaps = np.minimum(np.diff(hits) - 1, 1000)
    chance = stats.geom.pmf(np.arange(1, 1002), 1 / 256)
    chance[-1] = 1 - chance[:-1].sum()
    expected = chance * gaps.size
    assert is_chance(((np.bincount(gaps, minlength=1001) - expected) ** 2 / expected).sum(), 1000)


@pytest.mark.slow
@LONG_STREAM
def test_birthday_spacings_of_a_long_stream_repeat_as_by_chance(name):
    """Marsaglia's test with 2^12 birthdays in a year of 2^32 days: repeated spacings are Poisson with mean 4."""
    birthdays = np.sort(long_stream(name).reshape(-1, 4096), axis=1)
    spacings = np.sort(np.diff(birthdays, axis=1), axis=1)
    repeats = np.count_nonzero(np.diff(spacings, axis=1) == 0, axis=1)
    counts = np.bincount(np.minimum(repeats, 14), minlength=15)
    chance = stats.poisson.pmf(np.arange(15), 4)
    chance[-1] = stats.poisson.sf(13, 4)
    expected = chance * repeats.size
    assert is_chance(((counts - expected) ** 2 / expected).sum(), 14)


@pytest.mark.slow
@pytest.mark.parametrize("name", STREAMS)
def test_no_bit_goes_with_a_bit_nearby_in_four_million_words(name):
    words = stream.__wrapped__(name, 2**22)
    for lag in (1, 2, 64):
        assert unrelated_bits(words[:-lag], words[lag:])


@pytest.mark.slow
def test_avalanche_of_the_high_bits_of_the_position():
    words = long_stream("positions")
    inputs = np.random.default_rng(0).integers(0, 2**26, 2**17, dtype=np.uint32)
    assert_avalanche(lambda position: words[position], inputs, range(20, 26))


def test_random_streams_have_distinct_tags():
    for tags in (random.Stream, random.Domain):
        assert len({tag.value for tag in tags.__members__.values()}) == len(tags.__members__)


def test_a_stream_folds_like_its_number():
    key = random.root_key(5)
    for stream in random.Stream:
        assert np.array_equal(random.fold_in(key, stream), random.fold_in(key, int(stream)))
