//! Starlings trains machine-learning models on many machines at once: algorithm × parallelism × topology ×
//! consistency × compression, each a word in a file, on machines that fail.
//!
//! Two ways in, and the first is built on the second:
//!
//! 1. [`train`]: a job in, a trained model out; the engine owns the loop.
//! 2. [`Flock`]: the caller owns the loop; [`Flock::merge`] sums blocks over all members.
//!
//! ```
//! use starlings::{Job, Surroundings, TrainOptions};
//! let text = "[data]\ntrain = 'digits'\nlabel = 'class'\n\
//!             [learner]\nname = 'k-means'\nk = 10\n[train]\nepochs = 3\n";
//! let around = Surroundings { folder: ".".into(), cores: 2 };
//! let job = Job::parse(text, &[], &around)?;
//! let trained = starlings::train(job, TrainOptions::default())?;
//! assert!(trained.report.objective.is_finite());
//! # Ok::<(), starlings::Fault>(())
//! ```

mod catalogue;
mod inspection;
mod labels;
mod predictor;
mod processes;
mod training;
mod vote;

pub use catalogue::{ListedParam, Listing, combinations_table, list};
pub use inspection::Dependence;
pub use predictor::{Prediction, Predictor};
pub use processes::{launch, launch_with, serve_if_worker};
pub use training::{TrainOptions, TrainedModel, train};

pub use starlings_cluster::atomic::write_whole;
pub use starlings_cluster::checkpoint::Store as CheckpointStore;
pub use starlings_cluster::coordinator::Coordinator;
pub use starlings_cluster::manifest::Manifest;
pub use starlings_cluster::membership::Options as MembershipOptions;
pub use starlings_cluster::model_file::{self, ModelFile};
pub use starlings_cluster::protocol::{MemberStatus, Status};
pub use starlings_core::{
    Blame, Block, Body, Calibration, Confusion, Deadline, Event, Fault, FaultReport, Kind, Model,
    Pace, Panel, ReliabilityBin, Report, Result, Rng, Role, Rows, Seat, Span, Spread, Step, Tensor,
    Update, Validation, Values, contributing, nearest, suggestion,
};
#[cfg(feature = "remote")]
pub use starlings_data::remote;
pub use starlings_data::{
    Column, ColumnKind, ColumnRef, DataSpec, Encoding, LabelNeed, Schema, Source, Survey, Target,
    fold_of_rows, survey,
};
pub use starlings_engine::bench::{AllReduce, Timing, Width};
pub use starlings_engine::checkpoints::{is_address, store_at as checkpoint_store};
pub use starlings_engine::choices::{Carriage, Choices, codec, gate, register, rule, summing};
pub use starlings_engine::clock::Observer;
pub use starlings_engine::flock::{Flock, FlockHost, FlockOptions};
pub use starlings_engine::job::{Job, Surroundings};
pub use starlings_engine::launch::flock::{resolve, status};
#[cfg(feature = "mpi")]
pub use starlings_engine::launch::mpi;
pub use starlings_engine::member::JoinOptions;
pub use starlings_engine::node::{Served, serve, serve_and_tell};
pub use starlings_engine::stop::Stop;
pub use starlings_learn::{Branch, Importance, Samples};
#[cfg(feature = "modules")]
pub use starlings_nn::modules::{OwnNetwork, own_network};
pub use starlings_observe as observe;
pub use starlings_transport::shared::NearbyAllocator;
pub use starlings_transport::{Ticket, check_bind};
