// The planner on a made-up device whose algorithms are three lines each: choice, forcing, caching, re-entrance.
#include "core/planner.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <set>
#include <thread>

#include "core/checked.h"

namespace vkconv {
namespace {

struct FakeDevice {
  using Pointer = std::byte*;
  struct Buffer {};
  struct Stream {};
  struct Traits {
    double fast_seconds = 1, slow_seconds = 2;
  };
};

std::atomic<int> made = 0;

struct FakePlan : Plan<FakeDevice> {
  explicit FakePlan(std::string n) : name(std::move(n)) { ++made; }
  void execute(FakeDevice::Stream&, const Operands<FakeDevice>&, std::byte*) const override {}
  std::string describe() const override { return name; }
  std::string name;
};

using FakeContext = Context<FakeDevice>;
using PlanPtr = std::shared_ptr<const Plan<FakeDevice>>;

const Algorithm<FakeDevice> kTable[] = {
    {"slow", [](const ConvProblem&, const FakeContext&) { return Support::yes(); },
     [](const ConvProblem&, const FakeContext& c) { return c.traits.slow_seconds; },
     [](const ConvProblem&, const FakeContext&) -> PlanPtr { return std::make_shared<FakePlan>("slow"); }},
    {"fast",
     [](const ConvProblem& p, const FakeContext&) {
       return p.groups == 1 ? Support::yes() : Support::no("has groups");
     },
     [](const ConvProblem&, const FakeContext& c) { return c.traits.fast_seconds; },
     [](const ConvProblem&, const FakeContext&) -> PlanPtr { return std::make_shared<FakePlan>("fast"); }},
    {"large",
     [](const ConvProblem& p, const FakeContext&) {
       checked_mul(p.in_channels, std::int64_t{1} << 62);
       return Support::no("it is never chosen");
     },
     nullptr, nullptr},
    // Plans a child through the same planner, as decompositions do.
    {"halves",
     [](const ConvProblem& p, const FakeContext&) { return p.batch % 2 ? Support::no("odd batch") : Support::yes(); },
     [](const ConvProblem& p, const FakeContext& c) {
       ConvProblem child = p;
       child.batch /= 2;
       return child.batch ? 0.4 * c.planner.seconds(child, c.workspace_limit_bytes) : 9.0;
     },
     [](const ConvProblem& p, const FakeContext& c) -> PlanPtr {
       ConvProblem child = p;
       child.batch /= 2;
       return std::make_shared<FakePlan>("halves(2x " +
                                         c.planner.plan({child, "", c.workspace_limit_bytes})->describe() + ")");
     }},
};

Planner<FakeDevice> make_planner(std::size_t capacity = 128) { return {kTable, {}, capacity}; }

TEST(Planner, ChoosesTheSmallestEstimateThatCanRun) {
  auto planner = make_planner();
  EXPECT_EQ(planner.plan({ConvProblem{}, ""})->describe(), "fast");
  EXPECT_EQ(planner.plan({parse_problem("fwd_f32_n1c4o4g2_i8_k3"), ""})->describe(), "slow");
  EXPECT_EQ(planner.plan({parse_problem("fwd_f32_n2c4o4_i8_k3"), ""})->describe(), "halves(2x fast)");
  EXPECT_EQ(planner.plan({parse_problem("fwd_f32_n4c4o4_i8_k3"), ""})->describe(), "halves(2x halves(2x fast))");
}

TEST(Planner, APreferredAlgorithmIsTakenWhereItCanRun) {
  auto planner = make_planner();
  const ConvProblem plain;
  const ConvProblem grouped = parse_problem("fwd_f32_n1c4o4g2_i8_k3");
  const ConvProblem other = parse_problem("fwd_f32_n3c4o4_i8_k3");
  const auto chosen = [&](const ConvProblem& p) { return planner.plan({p, ""})->describe(); };
  EXPECT_EQ(chosen(plain), "fast");
  planner.set_preferences({{plain, "slow"}, {grouped, "fast"}, {other, "imaginary"}});
  EXPECT_EQ(chosen(plain), "slow");    // the plan made before is forgotten
  EXPECT_EQ(chosen(grouped), "slow");  // fast has no groups
  EXPECT_EQ(chosen(other), "fast");
  EXPECT_EQ(planner.plan({plain, "fast"})->describe(), "fast");  // a forced algorithm goes first
  const auto preferred = [&](const ConvProblem& p) {
    std::string names;
    for (const Candidate& c : planner.explain(p, 0)) names += c.preferred ? c.name : "";
    return names;
  };
  EXPECT_EQ(preferred(plain), "slow");
  EXPECT_EQ(preferred(grouped) + preferred(other), "");
  planner.set_preferences({});
  EXPECT_EQ(chosen(plain), "fast");
}

// As when another thread changes them.
TEST(Planner, APlanOfPreferencesThatChangedMeanwhileIsNotKept) {
  const auto runs = [](const ConvProblem&, const FakeContext&) { return Support::yes(); };
  const Algorithm<FakeDevice> table[] = {
      {"slow", runs, [](const ConvProblem&, const FakeContext&) { return 2.0; },
       [](const ConvProblem&, const FakeContext&) -> PlanPtr { return std::make_shared<FakePlan>("slow"); }},
      {"fast", runs, [](const ConvProblem&, const FakeContext&) { return 1.0; },
       [](const ConvProblem& p, const FakeContext& c) -> PlanPtr {
         c.planner.set_preferences({{p, "slow"}});
         return std::make_shared<FakePlan>("fast");
       }}};
  Planner<FakeDevice> planner(table, {});
  EXPECT_EQ(planner.plan({ConvProblem{}, ""})->describe(), "fast");
  EXPECT_EQ(planner.plan({ConvProblem{}, ""})->describe(), "slow");
}

TEST(Planner, ADescribedDeviceDecides) {
  Planner<FakeDevice> planner(kTable, {.fast_seconds = 3, .slow_seconds = 2});
  EXPECT_EQ(planner.plan({ConvProblem{}, ""})->describe(), "slow");
}

TEST(Planner, RemembersChoicesUntilTheCacheIsCleared) {
  auto planner = make_planner();
  const ConvProblem one, two = parse_problem("fwd_f32_n2c4o4_i8_k3");
  int searches = 0;
  const auto choice = [&](const PlanRequest& request) {
    return planner.remembered(request, [&] { return "choice " + std::to_string(++searches); });
  };
  EXPECT_EQ(choice({one, "halves"}), "choice 1");
  EXPECT_EQ(choice({one, "halves"}), "choice 1");
  EXPECT_EQ(choice({two, "halves"}), "choice 2");
  EXPECT_EQ(choice({one, "halves", 0}), "choice 3");
  EXPECT_EQ(choice({one, "halves", kDefaultWorkspaceLimitBytes, 2}), "choice 4");
  EXPECT_EQ(choice({one, "fast"}), "choice 5");
  planner.clear_cache();
  EXPECT_EQ(choice({one, "halves"}), "choice 6");
}

TEST(Planner, ExplainsEveryAlgorithm) {
  auto planner = make_planner();
  const auto candidates = planner.explain(parse_problem("fwd_f32_n1c4o4g2_i8_k3"), 0);
  ASSERT_EQ(candidates.size(), 4u);
  EXPECT_EQ(candidates[0].seconds, 2);
  EXPECT_EQ(candidates[1].reason, "has groups");
  EXPECT_EQ(candidates[3].reason, "odd batch");
}

TEST(Planner, SizesThatOverflowAreAReason) {
  auto planner = make_planner();
  const ConvProblem p = parse_problem("fwd_f32_n1c4o4_i8_k3");
  EXPECT_NE(planner.explain(p, 0)[2].reason.find("64-bit"), std::string::npos);
  EXPECT_EQ(planner.plan({p, ""})->describe(), "fast");
  EXPECT_THROW(planner.plan({p, "large"}), ProblemError);
}

TEST(Planner, SaysWhenALargerWorkspaceWouldDo) {
  const Algorithm<FakeDevice> table[] = {
      {"roomy",
       [](const ConvProblem& p, const FakeContext& c) {
         return p.groups == 1 ? workspace_support("the rows", 100, c) : Support::no("has groups");
       },
       [](const ConvProblem&, const FakeContext&) { return 1.0; },
       [](const ConvProblem&, const FakeContext&) -> PlanPtr { return std::make_shared<FakePlan>("roomy"); }}};
  Planner<FakeDevice> planner(table, {});
  const auto message = [&](const PlanRequest& request) -> std::string {
    try {
      return planner.plan(request)->describe();
    } catch (const ProblemError& e) {
      return e.what();
    }
  };
  const std::string plain = "fwd_f32_n1c4o4_i8_k3", grouped = "fwd_f32_n1c4o4g2_i8_k3";
  EXPECT_EQ(message({parse_problem(plain), "", 100}), "roomy");
  EXPECT_EQ(message({parse_problem(plain), "", 99}),
            "no algorithm can run " + plain + " with workspace_limit=99, with a larger one roomy can");
  EXPECT_EQ(message({parse_problem(grouped), "", 99}), "no algorithm can run " + grouped);
}

TEST(Planner, AForcedAlgorithmRunsOrSaysWhyNot) {
  auto planner = make_planner();
  EXPECT_EQ(planner.plan({ConvProblem{}, "slow"})->describe(), "slow");
  EXPECT_EQ(planner.plan({ConvProblem{}, ""})->describe(), "fast");  // the forced plan is not reused
  EXPECT_THROW(planner.plan({ConvProblem{}, "imaginary"}), ProblemError);
  try {
    planner.plan({parse_problem("fwd_f32_n1c4o4g2_i8_k3"), "fast"});
    FAIL();
  } catch (const ProblemError& e) {
    EXPECT_NE(std::string(e.what()).find("has groups"), std::string::npos);
  }
}

TEST(Planner, CachesAndEvicts) {
  auto planner = make_planner(2);
  const int before = made;
  ConvProblem p;
  for (int round = 0; round < 3; ++round) planner.plan({p, ""});
  EXPECT_EQ(made - before, 1);
  EXPECT_EQ(planner.cache_info().hits, 2u);
  for (int n = 1; n < 2000; n += 2) {
    p.batch = n;
    EXPECT_EQ(planner.plan({p, ""})->describe(), "fast");
  }
  EXPECT_EQ(planner.cache_info().size, 2u);
  planner.set_cache_capacity(0);
  EXPECT_EQ(planner.plan({p, ""})->describe(), "fast");
  EXPECT_EQ(planner.cache_info().size, 0u);
}

TEST(Planner, ServesManyThreads) {
  auto planner = make_planner(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        ConvProblem p;
        p.batch = 1 + 2 * (i % 7);
        EXPECT_EQ(planner.plan({p, ""})->describe(), "fast");
      }
    });
  for (auto& t : threads) t.join();
}

// Every field of a request is part of the key: changing any one gives another key.
TEST(PlanRequest, EveryFieldIsPartOfTheKey) {
  std::vector<std::function<void(PlanRequest&)>> changes = {
      [](auto& r) { r.algorithm = "slow"; },
      [](auto& r) { r.workspace_limit_bytes = 1; },
      [](auto& r) { r.siblings = 7; },
      [](auto& r) { r.problem.pass = Pass::input_grad; },
      [](auto& r) { r.problem.dtype = DType::f16; },
      [](auto& r) { r.problem.output_dtype = DType::f64; },
      [](auto& r) { r.problem.precision = Precision::fast; },
      [](auto& r) { r.problem.flip = true; },
      [](auto& r) { r.problem.batch = 7; },
      [](auto& r) { r.problem.in_channels = 7; },
      [](auto& r) { r.problem.out_channels = 7; },
      [](auto& r) { r.problem.groups = 7; },
      [](auto& r) { r.problem.epilogue.bias = true; },
      [](auto& r) { r.problem.epilogue.addend = true; },
      [](auto& r) { r.problem.epilogue.activation = Activation::relu; },
      [](auto& r) { r.problem.epilogue.alpha = 7; },
      [](auto& r) { r.problem.epilogue.beta = 7; },
  };
  for (int a = 0; a < 3; ++a)
    for (auto field : {&ConvProblem::input, &ConvProblem::kernel, &ConvProblem::output, &ConvProblem::stride,
                       &ConvProblem::dilation, &ConvProblem::input_dilation, &ConvProblem::pad_lo})
      changes.push_back([=](PlanRequest& r) { (r.problem.*field)[a] = 7; });
  std::set<PlanRequest> keys{PlanRequest{}};
  for (const auto& change : changes) {
    PlanRequest r;
    change(r);
    keys.insert(r);
  }
  EXPECT_EQ(keys.size(), changes.size() + 1);
}

}  // namespace
}  // namespace vkconv
