"""Jobs side by side, with one line of progress that says how much time is left."""

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
WORKERS = min(4, CORES)  # each job may take a gigabyte of memory
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # in each job, as they fill the cores


def in_words(seconds):
    """Return a duration in words: ``8 s``, ``3 min 20 s``."""
    seconds = round(seconds)
    return f"{seconds} s" if seconds < 60 else f"{seconds // 60} min {seconds % 60} s"


class Progress:
    """How far the jobs are; see `run`.

    Parameters
    ----------
    expected : dict of str to float
        For each job the seconds that it takes on a common machine.
    stream : file, optional
        Where the line goes, standard output by default. On a terminal it is written over and over;
        elsewhere a new one follows each job.
    """

    def __init__(self, expected, stream=None):
        self.expected, self.stream, self.lock = dict(expected), stream or sys.stdout, threading.Lock()
        self.started, self.took, self.begin = {}, {}, time.monotonic()

    def left(self):
        """Return an estimate of the seconds that are left, from how fast the jobs have been so far."""
        now = time.monotonic()
        running = {name: now - t for name, t in self.started.items() if name not in self.took}
        seen = sum(self.took.values()) + sum(running.values())
        planned = sum(self.expected[name] for name in self.took) + sum(
            min(seconds, self.expected[name]) for name, seconds in running.items())
        speed = seen / planned if planned > 20 else 1.0
        rest = {name: max(speed * seconds - running.get(name, 0.0), 0.0)
                for name, seconds in self.expected.items() if name not in self.took}
        return max([sum(rest.values()) / WORKERS, *rest.values()], default=0.0)

    def show(self, text=None):
        """Write the line of progress, above it a line that stays, `text`."""
        with self.lock:
            running = [name for name in self.started if name not in self.took]
            line = f"{len(self.took)} of {len(self.expected)} done, {in_words(time.monotonic() - self.begin)} so far"
            if self.expected.keys() - self.took.keys():
                line += f", about {in_words(max(self.left(), 1))} left"
            if self.stream.isatty():
                stays = f"{text}\n" if text else ""
                self.stream.write(f"\r\x1b[2K{stays}{(line + ': ' + ', '.join(running))[:100]}")
            elif text:
                self.stream.write(f"{text}\n")
            else:
                self.stream.write(f"{line}\n")
            self.stream.flush()

    def end(self):
        """Take the line of progress away."""
        if self.stream.isatty():
            self.stream.write("\r\x1b[2K")
            self.stream.flush()


def run(jobs, expected, said, first=None, stream=None):
    """Carry out `jobs`, as many at a time as there are cores, those early that take long.

    Parameters
    ----------
    jobs : dict of str to callable
        An exception in one does not keep the others from running.
    expected : dict of str to float
        About how many seconds each takes; a job that is missing counts ten.
    said : callable
        Takes the name of a job that is done and its result, and returns a line that stays, or None.
    first : str, optional
        The job to begin with.
    stream : file, optional
        Where the progress goes.

    Returns
    -------
    dict of str to object
        What each job returned, or the exception that it raised.
    """
    results = {}
    progress = Progress({name: expected.get(name, 10.0) for name in jobs}, stream)

    def carry_out(name):
        progress.started[name] = time.monotonic()
        try:
            results[name] = jobs[name]()
        except Exception as error:  # the caller tells
            results[name] = error
        progress.took[name] = time.monotonic() - progress.started[name]
        progress.show(said(name, results[name]))

    with ThreadPoolExecutor(WORKERS) as pool:
        try:
            futures = [pool.submit(carry_out, name)
                       for name in sorted(jobs, key=lambda name: (name != first, -progress.expected[name]))]
            while not all(future.done() for future in futures):
                time.sleep(0.2)
                if progress.stream.isatty():
                    progress.show()
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    progress.end()
    return results
