//! The jobs that are disturbed: small, one for each way in which a step can end when a member is lost, and what of an
//! undisturbed run must come out all the same.

use serde_json::Value;

/// A job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Job {
    /// Mini-batches: the step is finished with the rows of those who are left; every row is used once a pass.
    Batches,
    /// Mini-batches of a network with a large layer: of two workers each sums gradients where it uses them.
    Network,
    /// Passes over all rows, folded shard by shard: the bits of an undisturbed run.
    Passes,
    /// Local steps: each goes on from its own model.
    Local,
    /// Memory that cannot be rebuilt: all go back to the last checkpoint.
    Topics,
}

impl Job {
    pub(super) fn name(self) -> &'static str {
        match self {
            Job::Batches => "batches",
            Job::Network => "network",
            Job::Passes => "passes",
            Job::Local => "local",
            Job::Topics => "topics",
        }
    }

    /// How a step of it ends when a member is lost.
    pub(super) fn completion(self) -> &'static str {
        match self {
            Job::Batches | Job::Network => "reweigh",
            Job::Passes => "recompute",
            Job::Local => "continue",
            Job::Topics => "restore",
        }
    }

    /// Its text, but for the cluster.
    pub(super) fn text(self) -> &'static str {
        match self {
            Job::Batches => {
                "[data]\ntrain = 'digits'\nlabel = 'class'\n\
                 [learner]\nname = 'logistic-regression'\nsolver = 'sgd'\nlearning_rate = 0.001\n\
                 [train]\nepochs = 20\nbatch = 32\nseed = 3\n"
            }
            Job::Network => {
                "[data]\ntrain = 'digits'\nlabel = 'class'\n\
                 [learner]\nname = 'mlp'\nhidden = [512]\nsolver = 'momentum'\nlearning_rate = 0.001\n\
                 [train]\nepochs = 20\nbatch = 64\nseed = 3\n"
            }
            Job::Passes => {
                "[data]\ntrain = 'synthetic://blobs?rows=1500&features=6&centers=12&seed=1'\n\
                 [learner]\nname = 'gaussian-mixture'\ncomponents = 4\nmax_iterations = 400\n\
                 tolerance = 0.0\n\
                 [train]\nseed = 3\nshards = 8\n"
            }
            Job::Local => {
                "[data]\ntrain = 'digits'\nlabel = 'class'\n\
                 [learner]\nname = 'logistic-regression'\nsolver = 'sgd'\nlearning_rate = 0.001\n\
                 [train]\nepochs = 200\nbatch = 32\nseed = 3\n"
            }
            Job::Topics => {
                "[data]\ntrain = 'synthetic://documents?documents=300&words=100&topics=5&seed=1'\n\
                 [learner]\nname = 'latent-dirichlet-allocation'\ntopics = 5\n\
                 [train]\nepochs = 200\nseed = 3\n"
            }
        }
    }

    /// What of `[cluster]` belongs to the job.
    pub(super) fn cluster(self) -> &'static str {
        match self {
            Job::Passes => "fold = 'reproducible'\n",
            Job::Local => "consistency = { name = 'local', steps = 4 }\n",
            Job::Batches | Job::Network | Job::Topics => "",
        }
    }

    /// Compares the report of a disturbed run with that of an undisturbed one.
    pub(super) fn check(self, report: &Value, calm: &Value) -> Result<(), String> {
        let differs = |key: &str| {
            let (found, calm) = (&report[key], &calm[key]);
            if found == calm { Ok(()) } else { Err(format!("{key} is {found} and not {calm}")) }
        };
        match self {
            Job::Batches | Job::Network => {
                let number = |report: &Value, key: &str| report[key].as_u64().unwrap_or(0);
                let found = number(report, "samples") + number(report, "rows_left_out");
                let due = number(calm, "samples");
                if found != due {
                    return Err(format!("{found} rows were used or told of, and not {due}"));
                }
                differs("steps")
            }
            Job::Passes => differs("digest").and(differs("steps")),
            Job::Local => at_least(report, "accuracy", 0.85),
            Job::Topics => differs("steps"),
        }
    }
}

fn at_least(report: &Value, metric: &str, least: f64) -> Result<(), String> {
    let found = report["metrics"][metric].as_f64().unwrap_or(f64::NAN);
    if found >= least { Ok(()) } else { Err(format!("{metric} is {found}, below {least}")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lost_rows_and_other_bits_are_seen() {
        let calm = json!({"samples": 100, "rows_left_out": 0, "steps": 7, "digest": "a"});
        let told = json!({"samples": 96, "rows_left_out": 4, "steps": 7});
        let lost = json!({"samples": 96, "rows_left_out": 0, "steps": 7});
        Job::Batches.check(&told, &calm).unwrap();
        assert!(Job::Batches.check(&lost, &calm).unwrap_err().contains("96"));
        let other = json!({"digest": "b", "steps": 7});
        assert!(Job::Passes.check(&other, &calm).unwrap_err().contains("digest"));
        let poor = json!({"metrics": {"accuracy": 0.5}});
        assert!(Job::Local.check(&poor, &calm).unwrap_err().contains("accuracy"));
    }
}
