"""A constrained study of mixed parameters: `python examples/plug_ins/optuna_sampler.py`."""

import optuna

from galapax.compat.optuna import GalapaxSampler

optuna.logging.set_verbosity(optuna.logging.WARNING)


def beam(trial):
    """The mass of a beam that has to be stiff enough."""
    height = trial.suggest_float("height", 0.01, 0.4, log=True)
    width = trial.suggest_float("width", 0.01, 0.1, step=0.005)
    material = trial.suggest_categorical("material", ["steel", "aluminium", "timber"])
    density, modulus = {"steel": (7850, 210e9), "aluminium": (2700, 70e9), "timber": (600, 10e9)}[material]
    stiffness = modulus * width * height**3 / 12
    trial.set_user_attr("constraints", [1 - stiffness / 2e5])
    return density * width * height


sampler = GalapaxSampler(seed=1, n_trials=200, constraints_func=lambda trial: trial.user_attrs["constraints"])
study = optuna.create_study(sampler=sampler)
study.optimize(beam, n_trials=200)
print(f"{study.best_value:.2f} kg/m", study.best_params)
