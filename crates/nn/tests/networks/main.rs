//! Networks from outside: against PyTorch, against finite differences, under the laws of learners, and with what does
//! not fit.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod differences;
mod generative;
mod grid;
mod laws;
mod links;
mod own;
mod pipeline;
mod references;
mod refusals;
mod split;
mod training;
mod world;

#[test]
fn the_book_tells_of_every_network_and_layer() {
    let book = include_str!("../../../../book/networks.md");
    for entry in starlings_nn::NETWORKS {
        assert!(book.contains(&format!("## {}\n", entry.name)), "{}", entry.name);
    }
    for layer in starlings_nn::layers() {
        let told = [" ", "`"].iter().any(|end| book.contains(&format!("`{}{end}", layer.name)));
        assert!(told, "{}", layer.usage);
    }
}
