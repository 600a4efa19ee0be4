// everstep-crd: prints the CustomResourceDefinition of TrainingJobs.
#include <iostream>

#include "operator/api/crd.h"

int main() {
  std::cout << everstep::CrdYaml();
  return 0;
}
