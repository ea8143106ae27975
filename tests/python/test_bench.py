"""bench/package.py leaves no process behind."""
import importlib.util
import os
import sys
import tempfile
import unittest
import unittest.mock

from common import ROOT


class Package(unittest.TestCase):
    def test_failure(self):
        """Where one of the two cannot run, the other, which is stopped at that time, ends as well."""
        spec = importlib.util.spec_from_file_location("package", os.path.join(ROOT, "bench", "package.py"))
        package = importlib.util.module_from_spec(spec)
        with unittest.mock.patch.object(sys, "path", [os.path.join(ROOT, "bench")] + sys.path):  # where its own modules are
            spec.loader.exec_module(package)
        begun = []

        class Run(package.Run):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                begun.append(self)
        waits = "import sys, time; print('ready', file=sys.stderr, flush=True); time.sleep(60)"
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as empty, unittest.mock.patch.multiple(package, Run=Run, PACKAGE=waits):
            os.chdir(empty)  # has no ./kvik
            try:
                with self.assertRaises(FileNotFoundError):
                    package.compare("model", "1", "dynamic", {})
                ends = [run.process.poll() for run in begun]
            finally:
                os.chdir(before)
                for run in begun:
                    run.close()
        self.assertEqual(len(ends), 1)
        self.assertIsNotNone(ends[0])


if __name__ == "__main__":
    unittest.main()
