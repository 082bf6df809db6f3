"""Reproductions of published systems, table by table: settings, runs, and our numbers beside the printed ones."""

PAPERS = {  # `galapax reproduce NAME`: the module that holds its PAPER
    "fep": "galapax.papers.fep_2007",
    "gagpu": "galapax.papers.gagpu_manual",
    "cde": "galapax.papers.cde_2012",
    "moea": "galapax.papers.moea_2015",
}
