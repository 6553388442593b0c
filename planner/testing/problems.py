def problems(name):
    from tests.perturbed import CASES
    return CASES[name].drawn
