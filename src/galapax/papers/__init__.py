"""Reproductions of published systems, table by table: settings, runs, and our numbers beside the printed ones."""

PAPERS = {  # `galapax reproduce NAME`: the module with its `measure`, `tables` and `figures`, and the title of its page
    "fep": ("galapax.papers.fep_2007", "Fast evolutionary programming"),
    "gagpu": ("galapax.papers.gagpu_manual", "GAGPU: a three-parent genetic algorithm"),
    "cde": ("galapax.papers.cde_2012", "Co-evolutionary differential evolution"),
    "moea": ("galapax.papers.moea_2015", "A multi-objective algorithm with fitness sharing"),
}
