"""What a run on a thousand GPUs would cost besides computing: `python benchmarks/thousand_gpus.py`.

Arithmetic, and a simulation of failures; nothing here was measured on a thousand GPUs. Measured are the figures of one
GPU, which are arguments: microseconds a generation, and what a migration and a checkpoint take on the host.
"""

from __future__ import annotations

import harness
import numpy as np

YEAR_HOURS = 24 * 365


def simulated(
    hours: float, host_mtbf: float, hosts: int, every: float, write: float, restart: float, seed: int
) -> float:
    """Hours until `hours` of work are done, when a lost host ends the run and all go on from the last checkpoint."""
    rng = np.random.default_rng(seed)
    clock = done = 0.0
    lost = clock + rng.exponential(host_mtbf / hosts)
    while done < hours:
        step = min(every, hours - done)
        if clock + step + write <= lost:
            clock, done = clock + step + write, done + step
        else:
            clock = lost + restart
            lost = clock + rng.exponential(host_mtbf / hosts)
    return clock


def main() -> None:
    parser = harness.make_parser(__doc__)
    parser.add_argument("--gpus", type=int, default=1000)
    parser.add_argument("--gpus-per-host", type=int, default=8)
    parser.add_argument("--islands-per-gpu", type=int, default=16)
    parser.add_argument("--population", type=int, default=1000)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--migrants", type=int, default=5)
    parser.add_argument("--migrate-every", type=int, default=100)
    parser.add_argument("--microseconds", type=float, default=40.0, help="of a generation of one GPU's islands")
    parser.add_argument("--migration-ms", type=float, default=2.0, help="host work of a migration, without the network")
    parser.add_argument("--network-gbit", type=float, default=10.0, help="of one host")
    parser.add_argument("--disk-mb", type=float, default=500.0, help="that process 0 writes per second")
    parser.add_argument("--mtbf-years", type=float, default=1.0, help="mean time between failures of one host")
    parser.add_argument("--restart-minutes", type=float, default=5.0)
    parser.add_argument("--hours", type=float, default=24.0)
    own = parser.parse_args()

    hosts = -(-own.gpus // own.gpus_per_host)
    islands = own.gpus * own.islands_per_gpu
    individual = 4 * (own.dim + 2)  # float32: genes, value, violation
    sent = islands * own.migrants * 4 * own.dim  # bytes, all islands, which every process is told
    period = own.migrate_every * own.microseconds * 1e-6
    network = sent * 8 / (own.network_gbit * 1e9)
    migration = own.migration_ms * 1e-3 + network
    share = migration / (period + migration)
    rate = islands * own.population / ((period + migration) / own.migrate_every)
    state = islands * own.population * individual * 2  # parents and candidates
    write = state / (own.disk_mb * 1e6) / 3600
    mtbf = own.mtbf_years * YEAR_HOURS
    young = (2 * write * mtbf / hosts) ** 0.5
    print(f"{own.gpus} GPUs on {hosts} hosts, {islands} islands of {own.population}, {own.dim} variables")
    print(
        f"migration every {own.migrate_every} generations: {sent / 1e6:.1f} MB to every host, "
        f"{1e3 * network:.1f} ms on the network, {1e3 * migration:.1f} ms in all, {100 * share:.0f} % of the time"
    )
    print(
        f"with a ring alone each host would receive {own.migrants * 4 * own.dim} bytes an edge: the rest is what "
        "telling everybody costs"
    )
    print(f"evaluations: {rate:.2e} a second, {rate * 3600 * own.hours:.2e} in {own.hours:g} hours")
    print(f"checkpoint: {state / 1e9:.2f} GB, {3600 * write:.1f} s to write by one process")
    print(
        f"a host is lost every {mtbf / hosts:.1f} hours; best time between checkpoints {60 * young:.1f} minutes (Young)"
    )
    for every in (young / 4, young, 4 * young):
        taken = [simulated(own.hours, mtbf, hosts, every, write, own.restart_minutes / 60, seed) for seed in range(200)]
        print(
            f"  checkpoints every {60 * every:6.1f} minutes: {own.hours:g} hours of work take "
            f"{np.mean(taken):.2f} (90 % of 200 simulations within {np.quantile(taken, 0.9):.2f})"
        )


if __name__ == "__main__":
    main()
