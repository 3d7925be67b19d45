"""The peak: single-precision matrix products of 2048 × 2048. `run N` does N of them and answers with flops."""

import argparse
import time

import torch
from serving import Line

SIZE = 2048


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, required=True)
    torch.set_num_threads(parser.parse_args().threads)
    line = Line()
    left, right = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)
    product = torch.mm(left, right)
    line.say({"version": torch.__version__})
    for _, times in line.commands():
        begin = time.perf_counter()
        for _ in range(times):
            torch.mm(left, right, out=product)
        line.say({"flops": times * 2 * SIZE**3, "seconds": time.perf_counter() - begin})


if __name__ == "__main__":
    main()
