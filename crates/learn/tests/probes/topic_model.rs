//! Topics: planted ones are found, another implementation's perplexity is reached, counts stay whole, and
//! memory survives.

use crate::{Knuth, dense, learner, schema, sparse};
use starlings_core::{Body, Model, Rows, Step, Update};
use starlings_data::{Dealer, Holding};
use starlings_learn::{Learner, Memory, Moment, Needs, NoWires, Outbox, Place, Work};
use starlings_testkit::drive::{Drive, Driven, Run, drive};

const NAME: &str = "latent-dirichlet-allocation";
const WORDS: usize = 50;
const TOKENS: i64 = 12_000;

/// 200 documents of 60 tokens, each from two of five topics of ten words, and a tenth of noise.
fn data() -> Holding {
    let mut knuth = Knuth(11);
    let mut values = vec![0.0; 200 * WORDS];
    for document in values.chunks_exact_mut(WORDS) {
        let topics = [(knuth.uniform() * 5.0) as usize, (knuth.uniform() * 5.0) as usize];
        let share = knuth.uniform();
        for _ in 0..60 {
            let topic = topics[usize::from(knuth.uniform() >= share)];
            let word = if knuth.uniform() < 0.9 {
                topic * 10 + (10.0 * knuth.uniform() * knuth.uniform()) as usize
            } else {
                (WORDS as f64 * knuth.uniform()) as usize
            };
            document[word] += 1.0;
        }
    }
    sparse(&dense(WORDS, values, vec![]))
}

fn train(holding: &Holding, parameters: &str, options: &Drive) -> Driven {
    let facts = options.facts(&schema(WORDS, 0), 200);
    drive(&*learner(NAME, parameters), &facts, holding, options).unwrap()
}

/// One worker's contribution to one step.
pub(crate) fn contribute(
    learner: &dyn Learner,
    (step, model): (u64, &Model),
    dealer: &Dealer,
    memory: &mut Memory,
) -> Update {
    let batch = dealer.everything();
    let (wires, outbox) = (&mut NoWires, &mut Outbox::new());
    let moment = Moment { step: Step(step), pass: 0, seed: 1, rows: batch.rows_step };
    let (place, batch) = (Place::WHOLE, &batch);
    learner.contribute(&mut Work { moment, place, model, batch, memory, wires, outbox }).unwrap();
    outbox.take()
}

#[test]
fn planted_topics_are_found_and_the_perplexity_is_not_worse_than_another_implementation_s() {
    // scikit-learn 1.9 on the same counts: LatentDirichletAllocation(n_components=5, doc_topic_prior=0.1,
    // topic_word_prior=0.01, max_iter=200, random_state=s).fit(C), exp(-mean log of transform(C) @ phi
    // over tokens), phi = components_ with rows that sum to 1: the best of s = 0..5.
    const REFERENCE: f64 = 13.71608010951153;
    let driven = train(&data(), "topics = 5", &Drive::default());
    let perplexity = driven.grade.metrics["perplexity"];
    assert!(perplexity < 1.03 * REFERENCE, "{perplexity}");
    let per_token = driven.grade.metrics["log_likelihood"] / TOKENS as f64;
    assert!((perplexity.ln() + per_token).abs() < 1e-12);

    let learned = driven.model.i64("topic_words");
    let mut free: Vec<usize> = (0..5).collect();
    for planted in 0..5 {
        let likeness = |topic: usize| {
            let (mut product, mut ours, mut theirs) = (0.0, 0.0, 0.0);
            for word in 0..WORDS {
                let a = learned[word * 5 + topic] as f64;
                let b = planted_share(planted, word);
                (product, ours, theirs) = (product + a * b, ours + a * a, theirs + b * b);
            }
            product / (ours * theirs).sqrt()
        };
        let best =
            free.iter().copied().max_by(|&a, &b| likeness(a).total_cmp(&likeness(b))).unwrap();
        assert!(likeness(best) > 0.9, "planted topic {planted}: {}", likeness(best));
        free.retain(|&topic| topic != best);
    }
}

/// The share of a word in a planted topic, from the distribution of the product of two uniform numbers.
fn planted_share(topic: usize, word: usize) -> f64 {
    let below = |x: f64| if x == 0.0 { 0.0 } else { x - x * x.ln() };
    let noise = 0.1 / WORDS as f64;
    match word.checked_sub(topic * 10) {
        Some(at @ 0..10) => 0.9 * (below((at + 1) as f64 / 10.0) - below(at as f64 / 10.0)) + noise,
        _ => noise,
    }
}

#[test]
fn every_step_leaves_as_many_counts_as_tokens() {
    let (holding, options) = (data(), Drive { workers: 2, epochs: Some(3), ..Drive::default() });
    let topics = learner(NAME, "topics = 5\nslices = 4");
    let mut run =
        Run::start(&*topics, &options.facts(&schema(WORDS, 0), 200), &holding, &options).unwrap();
    let mut steps = 0;
    while run.step().unwrap() {
        steps += 1;
        let (_, model, _) = run.checkpoint();
        let (words, totals) = (model.i64("topic_words"), model.i64("topics"));
        assert_eq!(words.iter().sum::<i64>(), TOKENS);
        assert!(words.iter().all(|&count| count >= 0));
        for (topic, &total) in totals.iter().enumerate() {
            assert_eq!(words.iter().skip(topic).step_by(5).sum::<i64>(), total);
        }
    }
    assert_eq!(steps, 1 + 3 * 4);
}

#[test]
fn one_two_and_four_workers_and_dense_rows_give_the_same_bits() {
    let options = |workers| Drive { workers, epochs: Some(5), ..Drive::default() };
    let holding = data();
    let alone = train(&holding, "topics = 5", &options(1)).model;
    for workers in [2, 4] {
        assert_eq!(alone.digest(), train(&holding, "topics = 5", &options(workers)).model.digest());
    }
    let mut values = vec![0.0; 200 * WORDS];
    for (row, into) in values.chunks_exact_mut(WORDS).enumerate() {
        let starlings_data::Row::Sparse(words, counts) = holding.table.row(row) else {
            panic!("sparse")
        };
        words.iter().zip(counts).for_each(|(&word, &count)| into[word as usize] = count);
    }
    let rows = dense(WORDS, values, vec![]);
    assert_eq!(alone.digest(), train(&rows, "topics = 5", &options(2)).model.digest());
}

#[test]
fn saved_memory_and_model_go_on_to_the_bit_and_a_lost_memory_does_not() {
    let (holding, options) = (data(), Drive { workers: 2, epochs: Some(10), ..Drive::default() });
    let undisturbed = train(&holding, "topics = 5", &options);
    let topics = learner(NAME, "topics = 5");
    let mut run =
        Run::start(&*topics, &options.facts(&schema(WORDS, 0), 200), &holding, &options).unwrap();
    (0..6).for_each(|_| assert!(run.step().unwrap()));
    let (steps, model, memory) = run.checkpoint();
    let finish = |workers: u32, memory: &Memory| {
        let options = Drive { workers, ..options };
        let mut run = Run::resume(&*topics, &holding, &options, (steps, &model, memory));
        while run.step().unwrap() {}
        run.finish().unwrap()
    };
    let restored = finish(4, &memory);
    assert_eq!(restored.model.digest(), undisturbed.model.digest());
    assert_eq!(restored.memory, undisturbed.memory);
    assert_eq!(restored.steps, undisturbed.steps);
    // This is why the engine must save it: new topics are other topics.
    assert_ne!(finish(4, &Memory::new()).memory, undisturbed.memory);
}

#[test]
fn a_step_that_is_computed_again_contributes_the_same() {
    let (holding, options) = (data(), Drive { epochs: Some(10), ..Drive::default() });
    let topics = learner(NAME, "topics = 5");
    let mut run =
        Run::start(&*topics, &options.facts(&schema(WORDS, 0), 200), &holding, &options).unwrap();
    (0..3).for_each(|_| assert!(run.step().unwrap()));
    let (step, model, mut memory) = run.checkpoint();
    let dealer = Dealer::new(holding.clone(), 1, 32);
    let first = contribute(&*topics, (step, &model), &dealer, &mut memory);
    let after = memory.clone();
    assert_eq!(contribute(&*topics, (step, &model), &dealer, &mut memory), first);
    assert_eq!(memory, after);
    assert_ne!(contribute(&*topics, (step + 1, &model), &dealer, &mut memory), first);
}

#[test]
fn owners_of_rows_together_apply_what_one_would() {
    let (holding, options) = (data(), Drive { epochs: Some(2), ..Drive::default() });
    let topics = learner(NAME, "topics = 5");
    let facts = options.facts(&schema(WORDS, 0), 200);
    let before = train(&holding, "topics = 5", &options);
    let dealer = Dealer::new(holding.clone(), 1, 32);
    let mut memory = before.memory.clone();
    let update = contribute(&*topics, (3, &before.model), &dealer, &mut memory);
    let moment = Moment { step: Step(3), pass: 0, seed: 1, rows: facts.rows };
    let mut whole = before.model.clone();
    topics.apply(&mut whole, &update, &moment).unwrap();
    assert_ne!(whole, before.model);
    let mut parts = before.model.clone();
    for (from, to) in [(0, 1), (1, 20), (20, 50)] {
        topics.apply(&mut parts, &restricted(&update, from, to), &moment).unwrap();
    }
    assert_eq!(whole, parts);
}

fn restricted(update: &Update, from: u32, to: u32) -> Update {
    let mut update = update.clone();
    for block in &mut update.blocks {
        if let Body::Rows(rows) = &mut block.body {
            *rows = Rows::range(rows, from, to);
        }
    }
    update
}

#[test]
fn only_the_rows_of_its_words_are_needed() {
    let (topics, holding) = (learner(NAME, "topics = 5"), data());
    let options = Drive::default();
    let model = topics.init(&options.facts(&schema(WORDS, 0), 200), Place::WHOLE).unwrap();
    let mut dealer = Dealer::new(holding.clone(), 1, 1);
    let batch = dealer.deal(0, 0);
    let starlings_data::Row::Sparse(words, _) = holding.table.row(batch.rows().next().unwrap())
    else {
        panic!("sparse")
    };
    let Needs::Rows(needed) = topics.needs(&model, &batch) else { panic!("not all") };
    assert_eq!((needed["topic_words"].as_slice(), needed["topics"].as_slice()), (words, &[0][..]));
}

#[test]
fn predicted_shares_follow_the_words_of_a_document() {
    let driven = train(&data(), "topics = 5", &Drive::default());
    let topics = learner(NAME, "topics = 5");
    // Ten tokens of planted topic 2, and an empty document.
    let mut values = vec![0.0; 2 * WORDS];
    values[20..25].fill(2.0);
    let dealer = Dealer::new(dense(WORDS, values, vec![]), 1, 2);
    let mut shares = vec![];
    topics.predict(&driven.model, &dealer.everything(), &mut shares).unwrap();
    let counts = driven.model.i64("topic_words");
    let topic = (0..5).max_by_key(|&topic| counts[20 * 5 + topic]).unwrap();
    assert!(shares[topic] > 0.8, "{shares:?}");
    assert!((shares[..5].iter().sum::<f64>() - 1.0).abs() < 1e-12);
    assert!(shares[5..].iter().all(|share| (share - 0.2).abs() < 1e-12), "{shares:?}");
}

#[test]
fn numbers_that_are_no_counts_are_refused_with_their_row() {
    let options = Drive::default();
    for wrong in [-1.0, 0.5, f32::NAN, 1e30] {
        let mut values = vec![1.0; 20 * 3];
        values[17 * 3 + 1] = wrong;
        let holding = dense(3, values, vec![]);
        let facts = options.facts(&schema(3, 0), 20);
        let fault = drive(&*learner(NAME, ""), &facts, &holding, &options).unwrap_err().to_string();
        assert!(fault.contains("row 17"), "{fault}");
    }
}
