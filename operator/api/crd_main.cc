// everstep-crd: prints the CustomResourceDefinition of TrainingJobs; with --fields, the list of
// their fields.
#include <iostream>
#include <string_view>

#include "operator/api/crd.h"

int main(int argc, char** argv) {
  const bool fields = argc == 2 && std::string_view(argv[1]) == "--fields";
  if (argc > 1 && !fields) {
    std::cerr << "usage: everstep-crd [--fields]\n";
    return 2;
  }
  std::cout << (fields ? everstep::FieldListText() : everstep::CrdYaml());
  return 0;
}
