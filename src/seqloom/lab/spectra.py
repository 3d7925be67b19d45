"""Where eigenvalues lie: of initial matrices, and of the steps of whole cells.

The matrix of a simple network is what a gradient meets at every step, up to the slopes of its activation. Of a gated
cell no single matrix shows that; the Jacobian of its step does, and it differs at every step.
"""

from functools import partial

from seqloom.drawing.figures import Finding
from seqloom.drawing.spectra import draw_spectra
from seqloom.lab.bench import Bench, Countdown, Say, silent
from seqloom.nn.cells.gru import GRUCell
from seqloom.nn.cells.lstm import CoupledCell, LSTMCell
from seqloom.nn.cells.rnn import ElmanCell
from seqloom.nn.init import Start
from seqloom.nn.jacobians import Spectrum, jacobians_along, spectrum_of
from seqloom.nn.recurrent import MakeCell

STARTS: dict[Start, str] = {
    "orthogonal": "orthogonal: a rotation",
    "spectral": "normal, scaled to ρ = 1",
    "xavier": "Glorot's uniform bounds",
}
CELLS: dict[str, MakeCell] = {
    "tanh RNN": ElmanCell,
    "GRU": GRUCell,
    "coupled LSTM, forget bias 1": CoupledCell,
    "LSTM, forget bias −2": partial(LSTMCell, forget_bias=-2.0),
    "LSTM, forget bias 1": LSTMCell,
    "LSTM, forget bias 4": partial(LSTMCell, forget_bias=4.0),
}


def run(*, seed: int = 1, quick: bool = False, say: Say = silent) -> list[Finding]:
    """The spectra of state matrices by initialisation, and those of one step of each cell."""
    width, burn_in = (24, 20) if quick else (96, 60)
    bench = Bench(width=width, sequences=1, burn_in=burn_in, steps=1)
    countdown = Countdown(say, 1 + len(CELLS))
    starts = {}
    for start, title in STARTS.items():
        cell = bench.cell(partial(ElmanCell, start=start), seed=seed)
        starts[title] = [spectrum_of("U", cell.from_state.weight)]
    countdown.done("initial matrices")
    steps = {}
    for name, make in CELLS.items():
        each = bench.cell(make, seed=seed)
        (jacobian,) = jacobians_along(each, bench.inputs(seed)[0], bench.settled(each, seed=seed))
        steps[name] = [spectrum_of("J", jacobian)]
        countdown.done(f"one step of a {name}")
    rotation, normal, uniform = (each[0] for each in starts.values())
    of_starts = (
        f"A rotation has all |λ| and all singular values at {rotation.gain:.2f}; normal numbers scaled to ρ = "
        f"{normal.radius:.2f} fill the circle and stretch by up to σ_max = {normal.gain:.2f} in a step; Glorot's "
        f"bounds give ρ = {uniform.radius:.2f} and σ_max = {uniform.gain:.2f}."
    )
    simple, forgets, keeps = (steps[name][0] for name in ("tanh RNN", "LSTM, forget bias −2", "LSTM, forget bias 4"))
    near = {name: float((abs(abs(each[0].eigenvalues) - 1) < 0.1).mean()) for name, each in steps.items()}
    of_steps = (
        f"One step of a settled tanh RNN has ρ = {simple.radius:.2f}, though its matrix has 1. A step of an LSTM has "
        f"ρ = {forgets.radius:.2f} with forget bias −2 and ρ = {keeps.radius:.2f} with forget bias 4. Of the "
        f"eigenvalues of that last one {near['LSTM, forget bias 4']:.0%} lie within 0.1 of the unit circle (the memory "
        f"is half of its state), and {near['tanh RNN']:.0%} of the RNN's."
    )

    def finding(name: str, title: str, sentence: str, spectra: dict[str, list[Spectrum]]) -> Finding:
        found = {group: each[0].as_data() for group, each in spectra.items()}
        return Finding(name, title, sentence, {**bench.as_data(seed), "spectra": found}, lambda: draw_spectra(spectra))

    return [
        finding("starts", "Eigenvalues of a state matrix by initialisation", of_starts, starts),
        finding("steps", "Eigenvalues of one step of each cell", of_steps, steps),
    ]
