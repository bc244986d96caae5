//! The one integration binary. Servers are real; `fixture` starts and shares them.

// clippy.toml excuses only the test functions, not what they call.
#![allow(clippy::unwrap_used)]

mod as_before;
mod bad_input;
mod carry_over;
mod checkpoint_modes;
mod client_engine;
mod command;
mod command_workload;
mod compare_cmd;
mod conditions;
mod config;
mod connecting;
mod controlling;
mod cut_off;
mod demo_cmd;
mod device_cmd;
mod disk;
mod doctor_cmd;
mod examples;
mod filesystems;
mod fixture;
mod generated;
mod hostile_server;
mod hosts;
mod killing;
mod leaving;
mod levels;
mod loading;
mod loading_features;
mod loading_many;
mod mail;
mod managed;
mod page;
mod polling;
mod private_cluster;
mod published;
mod redact;
mod run_cmd;
mod schema;
mod setup_cmd;
mod shims;
mod side_by_side;
mod silent;
mod slob_features;
mod sweeping;
mod sync_rep;
mod telemetry;
mod timing;
mod tls_server;
mod treating;
mod trusting;
mod undo_cmd;
mod validity;
mod workdir;
