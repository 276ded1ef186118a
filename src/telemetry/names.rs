//! Names of the metrics as they are registered. OpenMetrics text appends `_total` to counters.

pub const TTFT_SECONDS: &str = "plateau_ttft_seconds";
pub const ITL_SECONDS: &str = "plateau_itl_seconds";
pub const QUEUE_SECONDS: &str = "plateau_queue_seconds";
pub const PREFILL_TPS: &str = "plateau_prefill_tokens_per_second";
pub const DECODE_TPS: &str = "plateau_decode_tokens_per_second";
pub const REQUESTS: &str = "plateau_requests";
pub const ERRORS: &str = "plateau_errors";
pub const PROMPT_TOKENS: &str = "plateau_prompt_tokens";
pub const CACHED_TOKENS: &str = "plateau_cached_tokens";
pub const GENERATED_TOKENS: &str = "plateau_generated_tokens";
pub const EMPTY_COMPLETION: &str = "plateau_empty_completion";
pub const PREEMPTIONS: &str = "plateau_preemptions";
pub const QUEUE_DEPTH: &str = "plateau_queue_depth";
pub const KV_FILL_TOKENS: &str = "plateau_kv_fill_tokens";
pub const KV_SIZE_TOKENS: &str = "plateau_kv_size_tokens";
pub const ACTIVE_SEQUENCES: &str = "plateau_active_sequences";
pub const STEP_AGE_SECONDS: &str = "plateau_step_age_seconds";
pub const OLDEST_QUEUED_SECONDS: &str = "plateau_oldest_queued_seconds";
pub const GPU_MEMORY_USED: &str = "plateau_gpu_memory_used_bytes";
pub const GPU_MEMORY_TOTAL: &str = "plateau_gpu_memory_total_bytes";
pub const GPU_TEMPERATURE: &str = "plateau_gpu_temperature_celsius";
pub const GPU_POWER: &str = "plateau_gpu_power_watts";
pub const GPU_SM_CLOCK: &str = "plateau_gpu_sm_clock_hertz";
pub const GPU_MEMORY_CLOCK: &str = "plateau_gpu_memory_clock_hertz";
pub const KERNEL_CALLS: &str = "plateau_kernel_calls";
pub const KERNEL_FALLBACKS: &str = "plateau_kernel_fallbacks";
pub const KERNEL_ON: &str = "plateau_kernel_on";
pub const IMAGES: &str = "plateau_images";
pub const IMAGES_FAILED: &str = "plateau_images_failed";
pub const IMAGE_PIXELS: &str = "plateau_image_pixels";
pub const IMAGE_ENCODE_SECONDS: &str = "plateau_image_encode_seconds";
pub const IMAGE_CACHE_BYTES: &str = "plateau_image_cache_bytes";
pub const IMAGE_FILES: &str = "plateau_image_files";
pub const IMAGE_FILE_PIXELS: &str = "plateau_image_file_pixels";
pub const IMAGE_REFUSALS: &str = "plateau_image_refusals";
pub const IMAGE_DECODE_SECONDS: &str = "plateau_image_decode_seconds";
pub const IMAGE_FETCH_SECONDS: &str = "plateau_image_fetch_seconds";
pub const DECODE_STEPS: &str = "plateau_decode_steps";
pub const DRAFT_TOKENS: &str = "plateau_draft_tokens";
pub const DRAFT_ACCEPTED_TOKENS: &str = "plateau_draft_accepted_tokens";
pub const DRAFT_POSITION_TOKENS: &str = "plateau_draft_position_tokens";
pub const DRAFT_POSITION_ACCEPTED_TOKENS: &str = "plateau_draft_position_accepted_tokens";
pub const ACCEPTANCE_LENGTH: &str = "plateau_acceptance_length";
pub const DRAFT_GAIN: &str = "plateau_draft_gain";
pub const DRAFT_COLLAPSE: &str = "plateau_draft_collapse";
pub const CACHE_REQUESTS: &str = "plateau_cache_requests";
pub const CACHE_TOKENS: &str = "plateau_cache_restored_tokens";
pub const CACHE_BYTES: &str = "plateau_cache_bytes";
pub const CACHE_EVICTIONS: &str = "plateau_cache_evictions";
pub const CACHE_CHECKS: &str = "plateau_cache_checks";
pub const CACHE_NODES: &str = "plateau_cache_nodes";
pub const CACHE_SAVED: &str = "plateau_cache_states_saved";
pub const CACHE_LOST: &str = "plateau_cache_states_lost";
pub const CACHE_UNREADABLE: &str = "plateau_cache_unreadable_files";
pub const CACHE_UNWRITTEN: &str = "plateau_cache_failed_writes";
pub const CACHE_SAVE_SECONDS: &str = "plateau_cache_save_seconds";
pub const CACHE_RESTORE_SECONDS: &str = "plateau_cache_restore_seconds";

/// New and old names of renamed metrics. The old ones are registered beside the new for one release.
pub const RENAMED: &[(&str, &str)] = &[
    (IMAGES, "plateau_pictures"),
    (IMAGES_FAILED, "plateau_pictures_failed"),
    (IMAGE_PIXELS, "plateau_picture_pixels"),
    (IMAGE_ENCODE_SECONDS, "plateau_picture_encode_seconds"),
    (IMAGE_CACHE_BYTES, "plateau_picture_cache_bytes"),
    (IMAGE_FILES, "plateau_picture_files"),
    (IMAGE_FILE_PIXELS, "plateau_picture_file_pixels"),
    (IMAGE_REFUSALS, "plateau_picture_refusals"),
    (IMAGE_DECODE_SECONDS, "plateau_picture_decode_seconds"),
    (IMAGE_FETCH_SECONDS, "plateau_picture_fetch_seconds"),
];

/// The same of the gauges of GPUs, whose label had another name, too.
pub const RENAMED_GPU: (&str, &str) = ("plateau_gpu_", "plateau_card_");
