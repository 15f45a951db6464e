//! Tests of the engine as a whole, one program: fifty would each link the engine anew.
//!
//! A file that measures the process, or that others name, is a program of its own (`Cargo.toml`).

mod admission;
mod alter;
mod amplification;
mod anomalies;
mod background;
mod backup;
mod backup_chains;
mod backup_edges;
mod backup_lsm;
mod backups_random;
mod balance;
mod comparing;
mod counters;
mod damage;
mod damage_buffers;
mod damage_nodes;
mod damaged_rows;
mod definitions_apart;
mod delete_range;
mod delete_range_schedules;
mod deserts;
mod estimates;
mod fail_nth;
mod file_size;
mod first_key;
mod foreign_keys;
mod foreign_keys_apart;
mod foreign_keys_random;
mod foreign_keys_waits;
mod full_disk;
mod gc_debt;
mod increments;
mod index_rows;
mod io_budget;
mod key_parts;
mod key_rules;
mod large_transactions;
mod last_row;
mod level_debt;
mod locking_reads;
mod long_keys;
mod long_values;
mod lsm;
mod lsm_space;
mod mass_delete;
mod memory_waits;
mod online;
mod online_edges;
mod online_random;
mod prepared;
mod prepared_faults;
mod prepared_order;
mod quarantine;
mod quarantine_lsm;
mod range_locks;
mod read_only;
mod room_to_delete;
mod rounds;
mod rounds_random;
mod rows_anew;
mod rows_anew_actors;
mod rows_anew_damage;
mod rows_anew_edges;
mod rows_anew_gone;
mod rows_anew_held;
mod rows_anew_parts;
mod rows_anew_random;
mod rows_anew_record;
mod rows_anew_seams;
mod rules;
mod rules_definitions;
mod rules_transactions;
mod salvage;
mod single_deletes;
mod support;
mod table_codec;
mod tables;
mod transactions;
mod ttl;
mod unique;
mod unread_rows;

/// A file that is named nowhere would never run.
#[allow(clippy::disallowed_methods, reason = "the files themselves, as they were compiled")]
#[test]
fn every_file_of_tests_is_a_module_here_or_a_program() {
    let manifest = include_str!("../Cargo.toml");
    let here = include_str!("all.rs");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
    for entry in std::fs::read_dir(folder).expect("the tests are where they were compiled") {
        let name = entry.expect("a folder can be read").file_name().into_string().expect("names are plain");
        let Some(stem) = name.strip_suffix(".rs") else { continue };
        let named = here.contains(&format!("\nmod {stem};")) || manifest.contains(&format!("name = \"{stem}\""));
        assert!(named, "tests/{name} is neither a module of tests/all.rs nor a [[test]] of Cargo.toml: nobody runs it");
    }
}
