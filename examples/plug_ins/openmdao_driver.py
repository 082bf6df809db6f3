"""Gears of an OpenMDAO model, with integers and a constraint: `python examples/plug_ins/openmdao_driver.py`."""

import numpy as np
import openmdao.api as om

from galapax.compat.openmdao import GalapaxDriver


class GearTrain(om.ExplicitComponent):
    """Two stages of gears: how far the ratio is from 1/6.931, and the largest gear."""

    def setup(self):
        self.add_discrete_input("teeth", np.array([20, 20, 40, 40]))
        self.add_output("error", 0.0)
        self.add_output("largest", 0.0)

    def compute(self, inputs, outputs, discrete_inputs, discrete_outputs):
        a, b, c, d = discrete_inputs["teeth"]
        outputs["error"] = (1 / 6.931 - a * b / (c * d)) ** 2
        outputs["largest"] = max(a, b, c, d)


problem = om.Problem(reports=False)
problem.model.add_subsystem("gears", GearTrain(), promotes=["*"])
problem.model.add_design_var("teeth", lower=12, upper=60)
problem.model.add_objective("error")
problem.model.add_constraint("largest", upper=55)
problem.driver = GalapaxDriver(max_evaluations=5000, seed=1)
problem.setup()
problem.run_driver()
print(f"teeth {problem.get_val('teeth')}, error {problem.get_val('error').item():.2g}")
