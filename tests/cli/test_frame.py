#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""The frame of the command: options, help, completion, exit codes, colour."""
import re
import subprocess

from gpusys_cli import DONE, FAILED, USAGE, GPUSYS, CommandTest, main

ESCAPE = "\033["


class Usage(CommandTest):
    def test_no_command(self):
        out, err = self.expect(USAGE)
        self.assertEqual(out, "")
        self.assertEqual(err, "gpusys: no command was given\n  try     gpusys help\n")

    def test_unknown_command_suggests_the_nearest(self):
        _, err = self.expect(USAGE, "docter")
        self.assertEqual(err, 'gpusys: unknown command "docter"; did you mean doctor?\n  try     gpusys help\n')

    def test_unknown_command_far_from_any(self):
        _, err = self.expect(USAGE, "xyzzy")
        self.assertEqual(err, 'gpusys: unknown command "xyzzy"\n  try     gpusys help\n')

    def test_hidden_commands_are_not_suggested(self):
        _, err = self.expect(USAGE, "doctor-chil")
        self.assertNotIn("doctor-child", err)

    def test_unknown_long_option(self):
        _, err = self.expect(USAGE, "doctor", "--jsno")
        self.assertIn("unknown option --jsno; did you mean --json?", err)
        self.assertIn("gpusys doctor --help", err)

    def test_hidden_options_are_not_suggested(self):
        _, err = self.expect(USAGE, "doctor", "--self-tes")
        self.assertNotIn("did you mean", err)

    def test_unknown_letter(self):
        _, err = self.expect(USAGE, "doctor", "-qx")
        self.assertIn("unknown option -x", err)

    def test_missing_value(self):
        _, err = self.expect(USAGE, "doctor", "--require")
        self.assertIn("--require needs a value (NAME,...)", err)

    def test_value_for_a_flag(self):
        _, err = self.expect(USAGE, "doctor", "--json=yes")
        self.assertIn("--json takes no value", err)

    def test_empty_name_in_a_list(self):
        for names in ("", ",memfd", "memfd,", "memfd,,clock"):
            _, err = self.expect(USAGE, "doctor", "--require", names)
            self.assertIn("names with commas between them", err)

    def test_bad_durations(self):
        for text in ("", "x", "-1", "5 s", "5x", "1.2.3s", "0.1ns", "1.0000000001s", "s", "+1s", "1e3s"):
            _, err = self.expect(USAGE, "doctor", f"--timeout={text}")
            self.assertIn(f'--timeout wants a duration such as 500ms, 2s or 1m, not "{text}"', err)

    def test_durations_too_large(self):
        for text in ("9223372037s", "99999999999999999999999s", "3000000h"):
            _, err = self.expect(USAGE, "doctor", f"--timeout={text}")
            self.assertIn("too large", err)

    def test_good_durations(self):
        for text in ("5", "0.5s", "500ms", "2s", "1m", "1min", "1h", "9223372036s", "900000us", "900000µs"):
            self.expect(DONE, "help", f"--timeout={text}")

    def test_too_many_words(self):
        _, err = self.expect(USAGE, "doctor", "word")
        self.assertIn("gpusys: doctor: too many words on the command line; it takes options alone\n", err)

    def test_too_few_words(self):
        _, err = self.expect(USAGE, "doctor-child")
        self.assertIn("too few words on the command line; it takes CHECK\n", err)

    def test_dashes_end_the_options(self):
        _, err = self.expect(USAGE, "help", "--", "--json")
        self.assertIn('unknown command "--json"', err)

    def test_global_options_on_either_side(self):
        self.assertEqual(self.expect(DONE, "-q", "doctor"), ("", ""))
        self.assertEqual(self.expect(DONE, "doctor", "--quiet"), ("", ""))
        self.assertEqual(self.expect(DONE, "--timeout", "5s", "-q", "doctor"), ("", ""))

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "w") as full:
            _, err = self.expect(FAILED, "help", stdout=full)
        self.assertEqual(err, "gpusys: cannot write to standard output: No space left on device\n")


class Help(CommandTest):
    def commands(self):
        out, _ = self.expect(DONE, "help")
        return re.findall(r"^  (\w[\w-]*) ", out.split("\nOptions")[0], re.MULTILINE)

    def test_three_ways_to_the_overview(self):
        out, err = self.expect(DONE, "help")
        self.assertEqual(err, "")
        self.assertEqual(self.expect(DONE, "--help")[0], out)
        self.assertEqual(self.expect(DONE, "-h")[0], out)

    def test_every_command_has_help_both_ways(self):
        self.assertIn("doctor", self.commands())
        for command in self.commands():
            out, _ = self.expect(DONE, "help", command)
            self.assertTrue(out.startswith(f"gpusys {command}: "), out)
            self.assertIn(f"\nUsage: gpusys {command} [OPTION...]", out)
            self.assertIn("--timeout DURATION", out)
            self.assertEqual(self.expect(DONE, command, "--help")[0], out)

    def test_help_fits_a_terminal(self):
        for command in self.commands():
            out, _ = self.expect(DONE, "help", command)
            for line in out.splitlines():
                self.assertLessEqual(len(line), 110, line)

    def test_hidden_things_stay_hidden(self):
        self.assertNotIn("doctor-child", self.expect(DONE, "help")[0])
        self.assertNotIn("self-test", self.expect(DONE, "help", "doctor")[0])
        self.assertNotIn("self-test", self.expect(DONE, "help", "--completion", "bash")[0])

    def test_unknown_command(self):
        self.assertIn('unknown command "nosuch"', self.expect(USAGE, "help", "nosuch")[1])

    def test_version(self):
        out, _ = self.expect(DONE, "--version")
        self.assertRegex(out, r"\Agpusys \d+\.\d+\.\d+\n(x86-64|aarch64|another architecture), (gcc|clang) .*\n\Z")
        self.assertEqual(self.expect(DONE, "doctor", "--version")[0], out)

    def test_completion(self):
        script, _ = self.expect(DONE, "help", "--completion", "bash")
        def complete(*words):
            words = ["gpusys", *words]
            run = script + '\nCOMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _gpusys; printf "%s\\n" "${COMPREPLY[@]}"'
            done = subprocess.run(["bash", "-c", run, "bash", *words], check=True, capture_output=True, text=True)
            return done.stdout.split()
        self.assertEqual(complete("doc"), ["doctor"])
        self.assertEqual(complete("help", "doc"), ["doctor"])
        self.assertEqual(complete("doctor", "--js"), ["--json"])
        self.assertEqual(complete("doctor", "--req"), ["--require"])
        self.assertEqual(complete("doctor", "x"), [])
        self.assertEqual(set(self.commands()) - set(complete("")), set())

    def test_completion_for_another_shell(self):
        self.assertIn('no completion for "fish"', self.expect(USAGE, "help", "--completion", "fish")[1])


class Colour(CommandTest):
    def test_none_in_a_pipe(self):
        self.assertNotIn(ESCAPE, "".join(self.expect(DONE, "doctor") + self.expect(USAGE, "nosuch")))

    def test_on_a_terminal(self):
        self.assertIn(ESCAPE, self.on_terminal("help"))
        self.assertIn(ESCAPE, self.on_terminal("nosuch"))

    def test_no_color(self):
        self.assertNotIn(ESCAPE, self.on_terminal("help", env={"NO_COLOR": "1"}))
        self.assertIn(ESCAPE, self.on_terminal("help", env={"NO_COLOR": ""}))

    def test_dumb_terminal(self):
        self.assertNotIn(ESCAPE, self.on_terminal("help", env={"TERM": "dumb"}))


class Start(CommandTest):
    def test_runs_without_environment_or_standard_streams(self):
        subprocess.run(["env", "-i", GPUSYS, "help"], check=True, stdout=subprocess.DEVNULL)
        closed = subprocess.run(["sh", "-c", 'exec "$1" --version <&- >&- 2>&-', "sh", GPUSYS], timeout=60)
        self.assertEqual(closed.returncode, FAILED)  # it could not say what it was asked


if __name__ == "__main__":
    main()
