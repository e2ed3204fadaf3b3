"""Runs test modules of CPython, or single tests, and says `pass NAME` or `fail NAME` on descriptor 3.

usage: cpython.py LIMIT MODULE-OR-TEST...

What needs the net outside, much memory or a screen is left out. A run that takes longer than LIMIT
seconds shows where it stands and ends.
"""

import faulthandler
import os
import sys
import unittest

from test import support
from test.support import os_helper, threading_helper

LEAVE_OUT = (
    "VSOCK",  # may hang in a virtual machine
    "NetworkedTests",
    "NetworkConnection",
    "robotparser.NetworkTestCase",
    "RotatingFileHandler",
)


class Result(unittest.TextTestResult):
    def startTest(self, test):
        super().startTest(test)
        self.bad = len(self.failures) + len(self.errors)

    def stopTest(self, test):
        super().stopTest(test)
        if len(self.failures) + len(self.errors) > self.bad:
            say("fail", test)

    def addSuccess(self, test):
        super().addSuccess(test)
        say("pass", test)


def say(what, test):
    os.write(3, f"{what} {test.id()}\n".encode())


def left_out(name):
    return any(part in name for part in LEAVE_OUT)


def flat(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flat(test)
        elif not left_out(test.id()):
            yield test


def main():
    faulthandler.dump_traceback_later(int(sys.argv[1]), exit=True)
    os.set_inheritable(3, False)
    support.use_resources = ["network", "subprocess", "curses", "decimal"]
    support.verbose = 0
    # By class, so that what a module or class sets up is set up once.
    tests = unittest.TestSuite(flat(unittest.defaultTestLoader.loadTestsFromNames(sys.argv[2:])))
    with os_helper.temp_cwd(f"cpython-{os.getpid()}"):
        runner = unittest.TextTestRunner(resultclass=Result, verbosity=2)
        good = runner.run(tests).wasSuccessful()
    threading_helper.threading_cleanup(*threading_helper.threading_setup())
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(not good)


main()
