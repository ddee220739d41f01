"""The rules by which kernel_counts.py decides, on made-up counts."""

import json
import subprocess
import sys
import unittest
from unittest import mock

import growth_counts
import kernel_counts


class Compare(unittest.TestCase):
    def test_within_the_tolerance(self):
        for counted in (970, 1000, 1030):
            lines, good = kernel_counts.compare({"a": counted}, {"a": 1000})
            self.assertTrue(good)
            self.assertNotIn("make", lines[0])

    def test_slower_names_kernel_counts_and_command(self):
        lines, good = kernel_counts.compare({"a": 1031, "b": 5}, {"a": 1000, "b": 5})
        self.assertFalse(good)
        for part in ("a:", "1031", "1000", "+3.1%", "SLOWER", "make counts-update"):
            self.assertIn(part, lines[0])
        self.assertNotIn("SLOWER", lines[1])

    def test_faster_asks_for_a_new_baseline(self):
        lines, good = kernel_counts.compare({"a": 969}, {"a": 1000})
        self.assertFalse(good)
        self.assertIn("faster", lines[0])
        self.assertIn("make counts-update", lines[0])

    def test_a_kernel_without_baseline_and_the_reverse(self):
        for counts, stored in (({"a": 1}, {}), ({}, {"a": 1})):
            lines, good = kernel_counts.compare(counts, stored)
            self.assertFalse(good)
            self.assertIn("make counts-update", lines[0])


class Growth(unittest.TestCase):
    def test_twice_the_work_passes_and_four_times_fails(self):
        lines, good = growth_counts.compare(["a", "b"], [100, 201, 7, 14])
        self.assertTrue(good)
        self.assertEqual(len(lines), 2)
        lines, good = growth_counts.compare(["a", "b"], [100, 201, 7, 28])
        self.assertFalse(good)
        self.assertIn("MORE THAN", lines[1])

    def test_missing_profiles_are_an_error(self):
        for names, counts in (([], []), (["a"], [1]), (["a", "b"], [1, 2])):
            with self.assertRaises(kernel_counts.CountError):
                growth_counts.compare(names, counts)


class Profile(unittest.TestCase):
    def test_total(self):
        self.assertEqual(kernel_counts.total("events: Ir\ntotals: 42\n"), 42)

    def test_nothing_counted_is_an_error(self):
        for profile in ("events: Ir\ntotals: 0\n", "events: Ir\n"):
            with self.assertRaises(kernel_counts.CountError):
                kernel_counts.total(profile)


class Skips(unittest.TestCase):
    def test_no_valgrind(self):
        with mock.patch("shutil.which", return_value=None):
            self.assertIn("valgrind", kernel_counts.reason_to_skip("Release", ""))

    def test_builds_that_do_not_count(self):
        with mock.patch("shutil.which", return_value="/bin/true"):
            self.assertIn("Debug", kernel_counts.reason_to_skip("Debug", ""))
            self.assertIn("address", kernel_counts.reason_to_skip("Release", "address"))

    def test_the_program_ends_as_ctest_expects(self):
        done = subprocess.run(
            [sys.executable, "-B", kernel_counts.__file__, "check", "none", "--build", "Debug"],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, kernel_counts.SKIPPED)
        self.assertIn("skipped:", done.stdout)

    def test_another_compiler(self):
        with (
            mock.patch.object(kernel_counts, "about", return_value="gcc 99"),
            mock.patch.object(kernel_counts, "count_all") as counting,
        ):
            self.assertEqual(kernel_counts.check("none"), kernel_counts.SKIPPED)
            counting.assert_not_called()


class Check(unittest.TestCase):
    def test_the_stored_counts_pass_and_a_tenth_more_fails(self):
        stored = json.loads(kernel_counts.BASELINES.read_text())
        self.assertEqual(stored["instructions"].keys(), kernel_counts.KERNELS.keys())
        for factor, code in ((1.0, 0), (1.1, 1), (0.9, 1)):
            counts = {name: round(value * factor) for name, value in stored["instructions"].items()}
            with (
                mock.patch.object(kernel_counts, "about", return_value=stored["made_with"]),
                mock.patch.object(kernel_counts, "count_all", return_value=counts),
            ):
                self.assertEqual(kernel_counts.check("none"), code)


if __name__ == "__main__":
    unittest.main()
