//! The named checks. Each makes a world of its own.
//!
//! | module | asks about |
//! |---|---|
//! | [`reads`] | points, ranges, bounds, directions, sizes of keys and values |
//! | [`versions`] | snapshots, replay, what the garbage collector may take |
//! | [`ranges`] | ranges deleted whole, before, while and after they are drained |
//! | [`runs`] | attached runs before, while and after they are drained |
//! | [`durability`] | reserve and apply, checkpoints, the log's mark, faults |
//! | [`space`] | space, memory, what is left after much was deleted |
//! | [`threads`] | all of it at the same time |

pub mod durability;
pub mod ranges;
pub mod reads;
pub mod runs;
pub mod space;
pub mod threads;
pub mod versions;

use super::world::Write;

/// A check.
pub type Check = fn(&super::Bench) -> super::Verdict;

/// The one list of checks. Calls `$act!($with, module, name)` for each.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_check {
    ($act:ident, $with:expr) => {
        $crate::for_each_check! { @groups $act, $with;
            reads: an_empty_index_answers, inserts_in_any_order, bounds_are_kept_both_ways, estimates_are_near, a_cursor_gives_what_is_asked, a_cursor_gives_a_megabyte_at_once, a_cursor_stays_at_its_snapshot, keys_of_every_size, values_of_every_size;
            versions: each_snapshot_sees_its_own, applying_again_changes_nothing, a_long_snapshot_pins_its_version_only, a27_one_key_larger_than_a_leaf, a_hot_key_stays_small, deletes_leave_nothing, a5_a_collected_delete_stays;
            runs: a3_every_read_merges_attached_runs, a3_a_bulk_build_is_a_run, a18_runs_keep_their_order, a3_a_drain_does_not_overwrite, a4_a_delete_above_a_run_waits_for_it, a3_a_checkpoint_keeps_runs, runs_of_nothing_and_of_deletes;
            ranges: a_deleted_range_hides_what_is_older, what_comes_later_stays, a_commit_may_put_into_what_it_deletes, deleted_ranges_outlive_a_crash, a6_a_deleted_range_does_not_outrun_its_record, ranges_over_ranges, who_reads_on_sees_nothing_of_it, what_was_copied_before_is_not_given_out, the_end_stays_the_end, cursors_hop_over_a_deleted_range, a_deleted_range_is_drained;
            durability: a1_apply_needs_no_disk, a1_a_dropped_reservation_leaves_nothing, a1_reserve_is_all_or_nothing, a1_a_large_cold_commit_gets_through, a_failed_read_is_an_error, a_failed_write_loses_nothing, a6_a_run_does_not_outrun_its_record, a_checkpoint_and_the_log_are_everything, checkpoints_move_on, a6_nothing_outruns_the_log, a6_a_log_that_refuses_stops_the_checkpoint, a_failed_checkpoint_costs_nothing, write_back_after_a_checkpoint_is_not_needed, a_crash_between_drain_and_checkpoint, p6_replay_collects_nothing;
            space: destroy_frees_all_space, space_does_not_grow_with_rewrites, p9_saved_counts_are_what_is_reached, a8_unlinked_ranges_stay_dead, a25_rows_put_into_a_desert_are_seen, c7_the_first_key_behind_a_desert, eviction_gives_memory_back;
            threads: writers_do_not_lose_each_other, readers_see_whole_commits, a2_eviction_under_writers_loses_nothing, a9_checkpoints_while_leaves_split, everything_at_once;
        }
    };
    (@groups $act:ident, $with:expr; $($group:ident: $($name:ident),+;)+) => {
        $($crate::for_each_check! { @names $act, $with, $group; $($name),+ })+
    };
    (@names $act:ident, $with:expr, $group:ident; $($name:ident),+) => {
        $($crate::$act! { $with, $group, $name })+
    };
}

/// Pushes one check; for [`all`].
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_push {
    ($list:expr, $group:ident, $name:ident) => {
        $list.push((stringify!($name), $crate::conformance::checks::$group::$name));
    };
}

/// All checks, by name.
#[must_use]
#[allow(clippy::vec_init_then_push, reason = "the pushes come from the list of checks")]
pub fn all() -> Vec<(&'static str, Check)> {
    let mut list: Vec<(&'static str, Check)> = Vec::new();
    crate::for_each_check!(conformance_push, list);
    list
}

/// The `i`-th key of a family that shares a long prefix, as rows of one table do.
#[must_use]
pub fn key(i: usize) -> Vec<u8> {
    format!("table/row/{i:06}").into_bytes()
}

/// A value that tells from which write it is.
#[must_use]
pub fn value(i: usize, round: usize) -> Vec<u8> {
    format!("value of {i} in round {round}, of a length that fills leaves").into_bytes()
}

/// Puts of keys `range` in one round.
#[must_use]
pub fn puts(range: impl IntoIterator<Item = usize>, round: usize) -> Vec<Write> {
    range.into_iter().map(|i| (key(i), Some(value(i, round)))).collect()
}

/// Deletes of keys `range`.
#[must_use]
pub fn deletes(range: impl IntoIterator<Item = usize>) -> Vec<Write> {
    range.into_iter().map(|i| (key(i), None)).collect()
}
