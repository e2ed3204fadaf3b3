//! The command line: which words there are, and whether a value is allowed. The
//! options of `run` are the rows of the table of settings; nothing about them is repeated here.

use crate::demote::Target;
use crate::help::{
    CHECK_NOTES, DEMOTE_NOTES, EXAMPLES, PORTMAP_NOTES, RULES_NOTES, RUN_NOTES, STAT_NOTES,
};
use clap::{Arg, ArgAction, ArgMatches, value_parser};
use std::ffi::{OsStr, OsString};
use std::time::Duration;
use transport::settings::{ALL, Kind, Setting};

/// What is asked for.
#[derive(Debug)]
pub(crate) enum Command {
    Run {
        /// Variables with their values, in the order of the table.
        settings: Vec<(&'static str, OsString)>,
        /// The program and its arguments; never empty.
        program: Vec<OsString>,
    },
    Demote {
        json: bool,
        /// How long to wait until it is done.
        wait: Duration,
        /// Never empty.
        targets: Vec<Target>,
    },
    Portmap {
        /// Wait until nobody else has the port.
        wait: bool,
    },
    /// `rules check`
    RulesCheck { file: OsString },
    Stat {
        json: bool,
        /// Empty for every process.
        pids: Vec<u32>,
    },
}

/// Why there is no command.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Help, the version, or words that make no command.
    Clap(clap::Error),
    /// A value that is not allowed, in one line.
    Value(String),
}

/// Lines of help are not broken below this.
const WIDTH: usize = 120;

fn tree() -> clap::Command {
    let run = clap::Command::new("run")
        .about("Run a program with its TCP streams on faster transports")
        .override_usage("shunt run [--OPTION VALUE]... -- PROGRAM [ARGUMENT]...")
        .args(ALL.iter().map(option))
        .arg(
            Arg::new("program")
                .value_name("PROGRAM")
                .help("the program, and its arguments")
                .value_parser(value_parser!(OsString))
                .num_args(1..)
                .required(true)
                .trailing_var_arg(true),
        )
        .after_help(RUN_NOTES);
    let stat = clap::Command::new("stat")
        .about("List the connections of running programs")
        .arg(
            Arg::new("json")
                .long("json")
                .help("print JSON")
                .action(ArgAction::SetTrue),
        )
        .arg(
            Arg::new("pid")
                .value_name("PID")
                .help("only these processes")
                .value_parser(value_parser!(u32).range(1..=i64::from(i32::MAX)))
                .num_args(0..),
        )
        .after_help(STAT_NOTES);
    let demote = clap::Command::new("demote")
        .about("Send connections of running programs back to kernel TCP")
        .arg(
            Arg::new("wait")
                .long("wait")
                .value_name("SECONDS")
                .help("how long to wait until it is done [0 to 3600; default 2]")
                .value_parser(seconds)
                .default_value("2")
                .hide_default_value(true),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .help("print JSON")
                .action(ArgAction::SetTrue),
        )
        .arg(
            Arg::new("target")
                .value_name("PID[:FD]")
                .help("a process, or one descriptor of it")
                .value_parser(value_parser!(Target))
                .num_args(1..)
                .required(true),
        )
        .after_help(DEMOTE_NOTES);
    let check = clap::Command::new("check")
        .about("Show the rules of a file as they are understood")
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .help("the file")
                .value_parser(value_parser!(OsString))
                .required(true),
        )
        .after_help(CHECK_NOTES);
    let rules = clap::Command::new("rules")
        .about("Look at files of rules, which choose a transport by program and address")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(check)
        .after_help(RULES_NOTES);
    let portmap = clap::Command::new("portmap")
        .about("Answer for this host which listeners take iWARP, as the SDP port mapper, in the foreground")
        .arg(
            Arg::new("wait")
                .long("wait")
                .help("wait until nobody else has the UDP port")
                .action(ArgAction::SetTrue),
        )
        .after_help(PORTMAP_NOTES);
    clap::Command::new("shunt")
        .about("Shunt: moves the TCP streams of unmodified programs off the kernel's TCP/IP stack")
        .version(env!("CARGO_PKG_VERSION"))
        .term_width(WIDTH)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommands([run, stat, demote, rules, portmap])
        .after_help(EXAMPLES)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok();
    match number.filter(|n| (0.0..=3600.0).contains(n)) {
        Some(n) => Ok(Duration::from_secs_f64(n)),
        None => Err("allowed is 0 to 3600".to_owned()),
    }
}

/// The option of one setting. The value is checked by [`checked`], for a message in one line.
fn option(s: &Setting) -> Arg {
    let default = match s.default {
        "" => String::new(),
        word => format!("; default {word}"),
    };
    let (name, allowed) = match s.kind {
        Kind::Choice(words) => ("WORD", words.join(", ")),
        Kind::Number { low, high } => ("NUMBER", format!("{low} to {high}")),
        Kind::File => ("FILE", String::new()),
    };
    let brackets = match format!("{allowed}{default}") {
        text if text.is_empty() => text,
        text => format!(" [{text}]"),
    };
    Arg::new(s.option)
        .long(s.option)
        .value_name(name)
        .value_parser(value_parser!(OsString))
        .allow_hyphen_values(true)
        .help(format!("{}{brackets}", s.help))
}

/// Reads the command line; the first word is the command's own name.
pub(crate) fn parse(words: Vec<OsString>) -> Result<Command, Refusal> {
    let matches = tree().try_get_matches_from(words).map_err(Refusal::Clap)?;
    match matches.subcommand() {
        Some(("run", run)) => {
            let settings = settings(run).map_err(Refusal::Value)?;
            let program = run.get_many::<OsString>("program");
            Ok(Command::Run {
                settings,
                program: program.into_iter().flatten().cloned().collect(),
            })
        }
        Some(("demote", demote)) => Ok(Command::Demote {
            json: demote.get_flag("json"),
            wait: demote
                .get_one("wait")
                .copied()
                .unwrap_or(Duration::from_secs(2)),
            targets: demote
                .get_many::<Target>("target")
                .into_iter()
                .flatten()
                .copied()
                .collect(),
        }),
        Some(("portmap", portmap)) => Ok(Command::Portmap {
            wait: portmap.get_flag("wait"),
        }),
        Some(("rules", rules)) => Ok(Command::RulesCheck {
            file: rules
                .subcommand()
                .and_then(|(_, check)| check.get_one("file").cloned())
                .unwrap_or_default(),
        }),
        Some((_, stat)) => Ok(Command::Stat {
            json: stat.get_flag("json"),
            pids: stat
                .get_many::<u32>("pid")
                .into_iter()
                .flatten()
                .copied()
                .collect(),
        }),
        None => Err(Refusal::Value(
            "no command given; see shunt --help".to_owned(),
        )),
    }
}

fn settings(run: &ArgMatches) -> Result<Vec<(&'static str, OsString)>, String> {
    let given = ALL
        .iter()
        .filter_map(|s| run.get_one::<OsString>(s.option).map(|v| (s, v)));
    given
        .map(|(s, value)| Ok((s.variable, checked(s, value)?)))
        .collect()
}

/// The value as the variable shall hold it, or the line that refuses it.
fn checked(s: &Setting, value: &OsStr) -> Result<OsString, String> {
    match value.to_str() {
        Some(text) if s.accepts(text) => Ok(match s.kind {
            // The program and its children may go to another directory before they open it.
            Kind::File => std::path::absolute(text).map_or_else(|_| value.to_owned(), Into::into),
            _ => value.to_owned(),
        }),
        _ => Err(format!(
            "--{} {}: allowed is {}",
            s.option,
            value.display(),
            s.allowed()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn run(line: &str) -> (Vec<(&'static str, OsString)>, Vec<OsString>) {
        match parse(words(line)) {
            Ok(Command::Run { settings, program }) => (settings, program),
            other => panic!("{other:?}"),
        }
    }

    fn refused(line: &str) -> String {
        match parse(words(line)) {
            Err(Refusal::Value(line)) => line,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_tree_is_sound() {
        tree().debug_assert();
    }

    #[test]
    fn options_become_variables_and_the_rest_is_the_program() {
        let (settings, program) = run("shunt run --transport=tcp --buf 256k -- sh -c --buf -- x");
        let expected = [
            ("SHUNT_TRANSPORT", "tcp".into()),
            ("SHUNT_BUF", "256k".into()),
        ];
        assert_eq!(settings, expected);
        assert_eq!(program, words("sh -c --buf -- x"));
        let (settings, program) = run("shunt run sh --transport tcp");
        assert!(settings.is_empty());
        assert_eq!(program, words("sh --transport tcp"));
    }

    #[test]
    fn every_setting_is_an_option_and_takes_its_default() {
        for s in ALL {
            let line = words(&format!("shunt run --{} {} -- true", s.option, s.default));
            let Ok(Command::Run { settings, .. }) = parse(line) else {
                panic!("{}", s.option)
            };
            assert_eq!(settings[0].0, s.variable);
        }
    }

    #[test]
    fn a_bad_value_is_one_line_with_option_value_and_what_is_allowed() {
        let line = refused("shunt run --peer-users all -- true");
        assert_eq!(line, "--peer-users all: allowed is same, any");
        let line = refused("shunt run --credits -1 -- true");
        assert!(
            line.starts_with("--credits -1: ") && line.contains("3 to 65535"),
            "{line}"
        );
        assert!(refused("shunt run --buf 12x -- true").contains("k, m, g"));
    }

    #[test]
    fn a_file_keeps_its_place_when_the_program_moves() {
        let (settings, _) = run("shunt run --report out.json -- true");
        assert!(std::path::Path::new(&settings[0].1).is_absolute());
        let odd = OsString::from_vec(vec![b'a', 0xff]);
        let rules = ALL.iter().find(|s| s.option == "rules").unwrap();
        assert!(checked(rules, &odd).is_err());
    }

    #[test]
    fn the_help_of_run_shows_every_word() {
        let mut tree = tree();
        let run = tree.find_subcommand_mut("run").unwrap();
        let help = run.render_help().to_string();
        assert!(
            ALL.iter()
                .all(|s| help.contains(s.option) && help.contains(s.help))
        );
        assert!(help.contains("auto, credit, packetized, nic"));
    }

    #[test]
    fn demote_takes_processes_and_descriptors() {
        let one = |pid, fd| Target { pid, fd };
        match parse(words("shunt demote --wait 0.5 12 34:5")) {
            Ok(Command::Demote {
                json: false,
                wait,
                targets,
            }) => {
                assert_eq!(wait, Duration::from_millis(500));
                assert_eq!(targets, [one(12, None), one(34, Some(5))]);
            }
            other => panic!("{other:?}"),
        }
        for bad in ["demote", "demote x", "demote 1:", "demote --wait -1 5"] {
            let line = format!("shunt {bad}");
            assert!(
                matches!(parse(words(&line)), Err(Refusal::Clap(_))),
                "{bad}"
            );
        }
    }

    #[test]
    fn rules_check_takes_one_file() {
        match parse(words("shunt rules check /etc/shunt.rules")) {
            Ok(Command::RulesCheck { file }) => assert_eq!(file, "/etc/shunt.rules"),
            other => panic!("{other:?}"),
        }
        for bad in ["rules", "rules check", "rules check a b", "rules mend a"] {
            let line = format!("shunt {bad}");
            assert!(
                matches!(parse(words(&line)), Err(Refusal::Clap(_))),
                "{bad}"
            );
        }
    }

    #[test]
    fn stat_takes_processes() {
        match parse(words("shunt stat --json 12 34")) {
            Ok(Command::Stat { json: true, pids }) => assert_eq!(pids, [12, 34]),
            other => panic!("{other:?}"),
        }
        assert!(matches!(
            parse(words("shunt stat 0")),
            Err(Refusal::Clap(_))
        ));
        assert!(matches!(
            parse(words("shunt stat x")),
            Err(Refusal::Clap(_))
        ));
    }
}
