//! The one integration binary. Servers are real; `fixture` starts and shares them.

// clippy.toml excuses only the test functions, not what they call.
#![allow(clippy::unwrap_used)]
// Users and attackers have sessions other than pgio's.
#![allow(clippy::disallowed_methods)]

mod abandoned;
mod as_before;
mod background;
mod bad_input;
mod building;
mod carry_over;
mod checkpoint_modes;
mod ci;
mod client_engine;
mod command_presets;
mod command_workload;
mod compare_cmd;
mod conditions;
mod connecting;
mod connecting_tls;
mod controlling;
mod controlling_undo;
mod cut_off;
mod device_cmd;
mod disk;
mod doctor_cmd;
mod drawing;
mod drivers;
mod examples;
mod filesystems;
mod gating;
mod history_cmd;
mod hostile_server;
mod hosts;
mod joint;
mod killing;
mod leaving;
mod levels;
mod live;
mod loading;
mod mail;
mod managed;
mod page;
mod planted;
mod private_cluster;
mod processes;
mod published;
mod recipes;
mod run_cmd;
mod schema;
mod screening;
mod setup_cmd;
mod shims;
mod side_by_side;
mod silent;
mod slob_features;
mod sshd;
mod sweeping;
mod sync_rep;
mod telemetry;
mod tls_server;
mod treating;
mod trusting;
mod undo_cmd;
mod validity;
mod weaving;
