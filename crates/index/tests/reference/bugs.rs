//! The bugs that the suite must find.

/// A bug of the reference, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    None,
    ReadsIgnoreRuns,
    PointsIgnoreRuns,
    RunsAreSeenTooEarly,
    SnapshotsExcludeTheirEnd,
    ExcludedIsIncluded,
    EstimatesForgetTheirEnd,
    CursorsSkipAtResume,
    ApplyKeepsOnlyTheNewest,
    NothingIsCollected,
    /// Takes a version although a snapshot between it and the next one sees it.
    GcForgetsSnapshots,
    /// Takes a tombstone although an older version stays below it.
    GcTakesTombstonesFirst,
    /// Rule A4.
    GcIgnoresRuns,
    DrainLosesDeletes,
    DrainTakesTheNewest,
    DrainLeavesClean,
    OpenForgetsRuns,
    SkipsRunsInMemory,
    SkipsNothing,
    CheckpointOutrunsTheLog,
    WriteBackOutrunsTheLog,
    FailedWritesCountAsDone,
    EvictsDirty,
    EvictsPinned,
    NeverEvicts,
    ReserveDoesNotLoad,
    ReserveApplies,
    DroppedReservationsStayPinned,
    DestroyLeaks,
    ImagesAreNotPublished,
    /// An image misses versions that were applied while the one before it was on its way.
    ImageForgetsTheLast,
}

impl Bug {
    /// All of them, each with a check that must find it.
    pub const ALL: [(Bug, &str); 30] = [
        (Bug::ReadsIgnoreRuns, "a3_every_read_merges_attached_runs"),
        (Bug::PointsIgnoreRuns, "a3_every_read_merges_attached_runs"),
        (Bug::RunsAreSeenTooEarly, "a3_every_read_merges_attached_runs"),
        (Bug::SnapshotsExcludeTheirEnd, "inserts_in_any_order"),
        (Bug::ExcludedIsIncluded, "bounds_are_kept_both_ways"),
        (Bug::EstimatesForgetTheirEnd, "estimates_are_near"),
        (Bug::CursorsSkipAtResume, "bounds_are_kept_both_ways"),
        (Bug::ApplyKeepsOnlyTheNewest, "each_snapshot_sees_its_own"),
        (Bug::NothingIsCollected, "a_hot_key_stays_small"),
        (Bug::GcForgetsSnapshots, "each_snapshot_sees_its_own"),
        (Bug::GcTakesTombstonesFirst, "a_cursor_stays_at_its_snapshot"),
        (Bug::GcIgnoresRuns, "a4_a_delete_above_a_run_waits_for_it"),
        (Bug::DrainLosesDeletes, "a3_every_read_merges_attached_runs"),
        (Bug::DrainTakesTheNewest, "a3_a_drain_does_not_overwrite"),
        (Bug::DrainLeavesClean, "a3_a_bulk_build_is_a_run"),
        (Bug::OpenForgetsRuns, "a3_a_checkpoint_keeps_runs"),
        (Bug::SkipsRunsInMemory, "a3_a_checkpoint_keeps_runs"),
        (Bug::SkipsNothing, "checkpoints_move_on"),
        (Bug::CheckpointOutrunsTheLog, "a6_a_log_that_refuses_stops_the_checkpoint"),
        (Bug::WriteBackOutrunsTheLog, "a6_nothing_outruns_the_log"),
        (Bug::FailedWritesCountAsDone, "a_failed_write_loses_nothing"),
        (Bug::EvictsDirty, "a2_eviction_under_writers_loses_nothing"),
        (Bug::EvictsPinned, "a1_apply_needs_no_disk"),
        (Bug::NeverEvicts, "eviction_gives_memory_back"),
        (Bug::ReserveDoesNotLoad, "a1_apply_needs_no_disk"),
        (Bug::ReserveApplies, "a1_a_dropped_reservation_leaves_nothing"),
        (Bug::DroppedReservationsStayPinned, "a1_a_dropped_reservation_leaves_nothing"),
        (Bug::DestroyLeaks, "destroy_frees_all_space"),
        (Bug::ImagesAreNotPublished, "p9_saved_counts_are_what_is_reached"),
        (Bug::ImageForgetsTheLast, "a_checkpoint_and_the_log_are_everything"),
    ];
}
