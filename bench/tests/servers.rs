//! The measurements on servers work in a tiny form.

mod common;

use common::{check, run};

#[test]
fn every_server_has_figures_and_pictures() {
    let (report, folder) = run("servers", &["redis", "redis-log", "memcached", "postgres"]);
    assert_eq!(check(&report, &folder), 3 + 1 + 3 + 3);
}
