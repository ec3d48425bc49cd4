//! Options that choose what is traced, generated from the catalogue's rows.

use std::collections::BTreeMap;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use gputrace_catalog::options::DOMAIN_OPTIONS;

use super::values::boolean;

/// Domain options that were given, with their values, by name of the option.
#[derive(Clone, Debug, Default)]
pub(crate) struct DomainArgs(BTreeMap<&'static str, bool>);

impl DomainArgs {
    /// The value given for an option of the catalogue, by its name without dashes.
    pub(crate) fn get(&self, option: &str) -> Option<bool> {
        self.0.get(option).copied()
    }

    /// Whether any option was given.
    pub(crate) fn any(&self) -> bool {
        !self.0.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn of(given: &[(&'static str, bool)]) -> Self {
        Self(given.iter().copied().collect())
    }
}

impl Args for DomainArgs {
    fn augment_args(command: Command) -> Command {
        DOMAIN_OPTIONS.iter().fold(command, |command, option| {
            let arg = Arg::new(option.long)
                .long(option.long)
                .aliases(option.aliases.iter().copied())
                .help(option.help)
                .help_heading("What to trace")
                .value_name("BOOL")
                .num_args(0..=1)
                .default_missing_value("true")
                .value_parser(boolean)
                .action(ArgAction::Set);
            command.arg(match option.short {
                Some(short) => arg.short(short),
                None => arg,
            })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for DomainArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = DOMAIN_OPTIONS.iter().filter_map(|option| {
            let value = matches.get_one::<bool>(option.long)?;
            Some((option.long, *value))
        });
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.extend(Self::from_arg_matches(matches)?.0);
        Ok(())
    }
}
