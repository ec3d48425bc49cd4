//! The header is the one that cbindgen makes from the code.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]

use std::{env, fs, path::Path};

use cbindgen::{Builder, Config};

#[test]
fn the_header_is_up_to_date() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = Config::from_file(directory.join("cbindgen.toml")).expect("the configuration");
    let mut builder = Builder::new().with_config(config);
    for file in ["error", "event", "options", "stream"] {
        builder = builder.with_src(directory.join(format!("src/{file}.rs")));
    }
    let mut made = Vec::new();
    builder.generate().expect("a header").write(&mut made);
    let made = String::from_utf8(made).expect("text");
    let path = directory.join("include/gputrace.h");
    if env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, &made).expect("the header");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == made,
        "include/gputrace.h is not up to date: UPDATE_EXPECT=1 cargo test -p gputrace-capi --test \
         header"
    );
}
