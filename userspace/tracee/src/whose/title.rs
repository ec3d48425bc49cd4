//! The name of a program as people know it.

use super::control_group::cut;

/// Maximum length of a title, bytes.
pub const LONGEST_TITLE: usize = 128;
/// Maximum number of arguments that are examined.
const LOOKED_AT: usize = 64;

/// An interpreter: the program is what it runs.
struct Interpreter {
    /// Name without a version.
    name: &'static str,
    /// Options that take the next argument.
    takes: &'static [&'static str],
    /// Options after which the program itself follows, in the next argument.
    runs: &'static [&'static str],
    /// Options that take the name of a module as the program.
    modules: &'static [&'static str],
}

/// Interpreters by the names of their programs, with options from their manual pages.
const INTERPRETERS: [Interpreter; 8] = [
    Interpreter {
        name: "python",
        takes: &["-W", "-X", "--check-hash-based-pycs"],
        runs: &["-c"],
        modules: &["-m"],
    },
    Interpreter {
        name: "pypy",
        takes: &["-W", "-X"],
        runs: &["-c"],
        modules: &["-m"],
    },
    Interpreter {
        name: "bash",
        takes: &["-o", "-O", "+O", "--rcfile", "--init-file"],
        runs: &["-c"],
        modules: &[],
    },
    Interpreter {
        name: "sh",
        takes: &["-o"],
        runs: &["-c"],
        modules: &[],
    },
    Interpreter {
        name: "perl",
        takes: &["-I"],
        runs: &["-e", "-E"],
        modules: &[],
    },
    Interpreter {
        name: "ruby",
        takes: &["-I", "-r"],
        runs: &["-e"],
        modules: &[],
    },
    Interpreter {
        name: "julia",
        takes: &["-J", "-t", "-p", "-L", "-C"],
        runs: &["-e", "-E"],
        modules: &[],
    },
    Interpreter {
        name: "node",
        takes: &["-r", "--require", "--import"],
        runs: &["-e", "-p", "--eval", "--print"],
        modules: &[],
    },
];

/// The title of a process from its arguments: `python train.py`, `python -m torch.distributed.run`,
/// `hip_calls`. A single argument with blanks is a title that the process gave itself
/// (setproctitle), and is kept. `name` (`/proc/PID/comm`) is used if there are no arguments.
#[must_use]
pub fn title(command: &[String], name: &str) -> String {
    let Some((first, rest)) = command
        .split_first()
        .filter(|(first, _)| !first.trim().is_empty())
    else {
        return cut(name, LONGEST_TITLE);
    };
    if rest.is_empty() && first.contains(' ') {
        return cut(first.trim(), LONGEST_TITLE);
    }
    let program = file_name(first);
    // Login shells have a `-` before their names.
    let program = program.strip_prefix('-').unwrap_or(program);
    let Some(interpreter) = interpreter(program) else {
        return cut(program, LONGEST_TITLE);
    };
    let title = match script(interpreter, rest) {
        Some(script) => format!("{} {script}", interpreter.name),
        None => interpreter.name.to_owned(),
    };
    cut(&title, LONGEST_TITLE)
}

/// The interpreter of a program's name, which may have a version: `python3.12`.
fn interpreter(program: &str) -> Option<&'static Interpreter> {
    let bare = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    let known = INTERPRETERS.iter();
    known.into_iter().find(|known| known.name == bare)
}

/// What an interpreter runs.
fn script(interpreter: &Interpreter, arguments: &[String]) -> Option<String> {
    let mut arguments = arguments.iter().take(LOOKED_AT);
    while let Some(argument) = arguments.next() {
        let option = argument.as_str();
        if interpreter.modules.contains(&option) {
            let module = arguments.next().map_or("", String::as_str);
            return Some(format!("{option} {}", cut(module, LONGEST_TITLE)));
        }
        if interpreter.runs.contains(&option) {
            return Some(option.to_owned());
        }
        if interpreter.takes.contains(&option) {
            arguments.next();
        } else if option == "--" {
            let script = arguments.next()?;
            return Some(cut(file_name(script), LONGEST_TITLE));
        } else if option == "-" || !option.starts_with('-') {
            return Some(cut(file_name(option), LONGEST_TITLE));
        }
    }
    None
}

fn file_name(path: &str) -> &str {
    let name = path.trim_end_matches('/').rsplit('/').next();
    name.filter(|name| !name.is_empty()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn programs_as_people_know_them() {
        for (command, expected) in [
            (&["python3.12", "train.py"][..], "python train.py"),
            (
                &[
                    "/usr/bin/python3",
                    "-u",
                    "-X",
                    "dev",
                    "/home/a/train.py",
                    "--lr",
                ],
                "python train.py",
            ),
            (
                &["python", "-m", "torch.distributed.run", "x.py"],
                "python -m torch.distributed.run",
            ),
            (&["python3", "-c", "import os"], "python -c"),
            (&["python3", "-"], "python -"),
            (&["python3"], "python"),
            (
                &["/opt/venv/bin/python3", "/opt/venv/bin/torchrun", "a.py"],
                "python torchrun",
            ),
            (&["/bin/bash", "-e", "./run.sh"], "bash run.sh"),
            (&["-bash"], "bash"),
            (&["sh", "-c", "sleep 1"], "sh -c"),
            (&["perl", "--", "-x.pl"], "perl -x.pl"),
            (&["./build/hip_calls", "loop", "0"], "hip_calls"),
            (&["pythonista", "a"], "pythonista"),
            // Titles that processes gave themselves: vLLM, Ray, nginx.
            (&["VLLM::EngineCore"], "VLLM::EngineCore"),
            (&["ray::train() on /x"], "ray::train() on /x"),
            (&["nginx: worker process"], "nginx: worker process"),
            (&[], "comm"),
            (&[""], "comm"),
            (&["/"], "/"),
        ] {
            let command: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
            assert_eq!(title(&command, "comm"), expected, "{command:?}");
        }
    }

    proptest! {
        #[test]
        fn any_arguments_are_bearable(
            command in proptest::collection::vec("(python3|-m|-c|--|-|/|\\PC{0,200})", 0..8),
            name in "\\PC{0,300}",
        ) {
            prop_assert!(title(&command, &name).len() <= LONGEST_TITLE);
        }
    }
}
